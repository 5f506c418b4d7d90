// Tools for the tests of the core: TEST registers a test, CHECK and CHECK_THROWS check a condition.
#pragma once

#include <stdexcept>
#include <string>

namespace cfe::tests {

// Registers itself: all tests are a chain.
struct Test {
  const char* name;
  void (*run)();
  const Test* next;

  Test(const char* own_name, void (*own_run)()) noexcept : name(own_name), run(own_run), next(last) { last = this; }

  static inline const Test* last = nullptr;
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

}  // namespace cfe::tests

#define TEST(name)                                        \
  static void name();                                     \
  static const cfe::tests::Test test_##name{#name, name}; \
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
