// Runs all tests once at each level that this machine has, or at the level that CFE_SIMD names.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/kernels.h"
#include "tests/check.h"

namespace cfe::tests {

namespace {

// Returns how many tests failed.
int run_all() {
  int count = 0, failed = 0;
  for (const Test* test = Test::last; test != nullptr; test = test->next, ++count) {
    try {
      test->run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s at level %s: %s\n", test->name, level().c_str(), error.what());
      ++failed;
    }
  }
  std::printf("%s: %d tests, %d failed\n", level().c_str(), count, failed);
  return failed;
}

int run_levels() {
  if (std::getenv("CFE_SIMD") != nullptr) {
    choose_level();
    return run_all();
  }
  int failed = 0;
  for (const std::string& name : available_levels()) {
    setenv("CFE_SIMD", name.c_str(), 1);
    choose_level();
    failed += run_all();
  }
  return failed;
}

}  // namespace

}  // namespace cfe::tests

int main() {
  try {
    return cfe::tests::run_levels() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
