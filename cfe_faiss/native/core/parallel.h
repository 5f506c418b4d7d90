// Tasks on several threads that live as long as one call: no pool outlives it, so a process may fork between calls.
#pragma once

#include <cstddef>
#include <functional>

namespace cfe {

// Called in the calling thread between two tasks, with how many are done. What it throws ends the call: tasks that have
// not begun by then never do.
using Watch = std::function<void(std::size_t done)>;

// Calls `task` once for each number below `tasks`, on up to `threads` threads, of which one is the caller's. The first
// exception of a task is thrown again here, after all threads have ended.
void parallel_for(std::size_t tasks, int threads, const std::function<void(std::size_t)>& task, const Watch& watch);

}  // namespace cfe
