// What must hold in the child of a fork, in which only the thread that forked goes on.
#pragma once

#include <atomic>
#include <cstdint>

namespace cfe {

// A section that a fork waits for, so that no child sees half of what it does. A section must be short, and wait for
// nothing but the GIL.
class Unforked {
 public:
  Unforked();
  ~Unforked();
  Unforked(const Unforked&) = delete;
  Unforked(Unforked&&) = delete;
  Unforked& operator=(const Unforked&) = delete;
  Unforked& operator=(Unforked&&) = delete;
};

// Waits for the end of all such sections, and keeps new ones from beginning until the fork is over.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// The number of forks between the first process and this one: a lock that was taken before the last one was taken by
// a thread that may be no more.
std::uint64_t forks_so_far();

// Held for an instant by a thread that opens a lock that was taken before a fork.
extern std::atomic_flag renewing;

}  // namespace cfe
