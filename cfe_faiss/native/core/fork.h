// State of the child after a fork, in which only the forking thread continues.
#pragma once

#include <atomic>
#include <mutex>

#include "core/common.h"

namespace cfe {

// A section that a fork waits for, so that no child sees an unfinished change. Sections must be short and wait for
// nothing but the GIL.
class Unforked : Fixed {
 public:
  Unforked();
  ~Unforked();
};

// Makes forks take the lock of a library that does not do so itself: in the child the lock is free.
void take_at_fork(std::mutex* lock);

// Waits for the end of all sections, and blocks new ones until the fork is over.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// The number of forks between the first process and this one. A lock taken before the last fork may belong to a thread
// that does not exist here.
std::uint64_t forks_so_far();

// Set for an instant by a thread that opens a lock taken before a fork.
extern std::atomic_flag renewing;

}  // namespace cfe
