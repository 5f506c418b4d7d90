// The instruction set that kernels are compiled for. Files in kernels/ are compiled once for each, with CFE_LEVEL set.
// Everything in them is in a namespace of that name, so that the linker cannot mix levels.
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
