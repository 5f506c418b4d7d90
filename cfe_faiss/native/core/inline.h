// Functions shared by kernels and other code: each file gets a copy for its instruction set, so that the linker cannot
// exchange them.
#pragma once

#include <cstddef>

#define CFE_INLINE inline __attribute__((always_inline))
// For rarely called functions of kernels.
#define CFE_OUTLINE inline __attribute__((noinline))
// For a lambda, after its parameters.
#define CFE_LAMBDA __attribute__((always_inline))

namespace cfe {

inline constexpr std::size_t kLanes = 16;  // numbers of a vector at every instruction set

// `number`, rounded up to a multiple of 16.
CFE_INLINE std::size_t padded(std::size_t number) { return (number + kLanes - 1) / kLanes * kLanes; }

}  // namespace cfe
