// Which instruction set a kernel is compiled for. kernels/kernels.cpp is compiled once for each, with CFE_LEVEL set;
// everything in it lies in a namespace of that name, so that no two of them are mixed up by the linker.
#pragma once

#ifndef CFE_LEVEL
#error "kernels are included by kernels/kernels.cpp only"
#endif

#if defined(CFE_LEVEL_avx512)
#include <immintrin.h>
#define CFE_WIDTH 16
#elif defined(CFE_LEVEL_avx2)
#include <immintrin.h>
#define CFE_WIDTH 8
#elif defined(CFE_LEVEL_neon)
#include <arm_neon.h>
#define CFE_WIDTH 4
#else
#define CFE_WIDTH 4
#endif
