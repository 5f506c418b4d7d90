// Functions that every file has a copy of, compiled for the instruction set of that file: safe to call from kernels, as
// the linker sees none of them.
#pragma once

#define CFE_INLINE inline __attribute__((always_inline))
// The same for a lambda: it stands after the parameters.
#define CFE_LAMBDA __attribute__((always_inline))
