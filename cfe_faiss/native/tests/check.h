// What the tests of the core are written with: TEST registers a test, CHECK and CHECK_THROWS are what it asks for.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace cfe::tests {

struct Test {
  const char* name;
  void (*run)();
};

// All tests, in the order in which files were linked.
std::vector<Test>& all_tests();

struct Registration {
  Registration(const char* name, void (*run)()) { all_tests().push_back({name, run}); }
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

}  // namespace cfe::tests

#define TEST(name)                                                        \
  static void name();                                                     \
  static const cfe::tests::Registration registration_##name{#name, name}; \
  static void name()

#define CHECK(holds)                                                       \
  do {                                                                     \
    if (!(holds)) cfe::tests::fail(__FILE__, __LINE__, "not so: " #holds); \
  } while (false)

// The expression throws an Error whose message holds the text.
#define CHECK_THROWS(Error, text, expression)                                                                  \
  do {                                                                                                         \
    std::string message_;                                                                                      \
    bool thrown_ = false;                                                                                      \
    try {                                                                                                      \
      (void)(expression);                                                                                      \
    } catch (const Error& error) {                                                                             \
      thrown_ = true;                                                                                          \
      message_ = error.what();                                                                                 \
    }                                                                                                          \
    if (!thrown_) cfe::tests::fail(__FILE__, __LINE__, "no " #Error " from: " #expression);                    \
    if (message_.find(text) == std::string::npos)                                                              \
      cfe::tests::fail(__FILE__, __LINE__, "the message is not about " + std::string(text) + ": " + message_); \
  } while (false)
