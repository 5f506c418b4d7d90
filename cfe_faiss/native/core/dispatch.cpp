#include <cstdlib>

#include "core/kernels.h"

#ifdef CFE_HAS_avx2
#include <cpuid.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace cfe {

const Kernels& kernels_generic();
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
const Kernels& kernels_neon();

namespace {

struct Level {
  std::string name;
  const Kernels* kernels = nullptr;
};

#ifdef CFE_HAS_avx2
// Compilers do not agree on whether __builtin_cpu_supports knows F16C.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::vector<Level> levels_here() {
  std::vector<Level> levels{{"generic", &kernels_generic()}};
#ifdef CFE_HAS_avx2
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                        __builtin_cpu_supports("popcnt") && has_f16c();
  if (has_avx2) levels.push_back({"avx2", &kernels_avx2()});
#endif
#ifdef CFE_HAS_avx512
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  if (has_avx2 && has_avx512) levels.push_back({"avx512", &kernels_avx512()});
#endif
#ifdef CFE_HAS_neon
#ifdef __linux__
  const bool has_dot_product = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  const bool has_dot_product = true;  // every 64-bit Mac
#endif
  if (has_dot_product) levels.push_back({"neon", &kernels_neon()});
#endif
  return levels;
}

Level used;

}  // namespace

const Kernels& kernels() { return *used.kernels; }
const std::string& level() { return used.name; }

std::vector<std::string> available_levels() {
  std::vector<std::string> names;
  for (const Level& level : levels_here()) names.push_back(level.name);
  return names;
}

void choose_level() {
  const std::vector<Level> levels = levels_here();
  const char* given = std::getenv("CFE_SIMD");
  const std::string wanted = given == nullptr || *given == '\0' ? levels.back().name : given;
  const auto found = std::ranges::find(levels, wanted, &Level::name);
  if (found != levels.end()) {
    used = *found;
    return;
  }
  std::string names;
  for (const Level& level : levels) names += (names.empty() ? "" : ", ") + level.name;
  throw std::runtime_error("CFE_SIMD must be one of " + names + ", which this machine has, got '" + wanted + "'");
}

}  // namespace cfe
