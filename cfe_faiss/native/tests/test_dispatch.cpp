#include <algorithm>
#include <cstdlib>

#include "core/kernels.h"
#include "tests/check.h"

namespace cfe {

TEST(level_in_use_is_available) {
  const std::vector<std::string> levels = available_levels();
  CHECK(levels.front() == "generic");
  CHECK(std::find(levels.begin(), levels.end(), level()) != levels.end());
}

TEST(impossible_level_is_refused_and_nothing_changes) {
  const std::string before = level();  // NOLINT(performance-unnecessary-copy-initialization): it could change
  setenv("CFE_SIMD", "sse9", 1);
  CHECK_THROWS(std::runtime_error, "CFE_SIMD must be one of generic", choose_level());
  CHECK(level() == before);
  setenv("CFE_SIMD", before.c_str(), 1);
}

}  // namespace cfe
