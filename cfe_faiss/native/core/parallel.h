// Tasks on several threads that live as long as one call: no pool outlives it, so a process may fork between calls.
#pragma once

#include <cstddef>
#include <functional>

namespace cfe {

// Called in the calling thread between two tasks, with the number of finished tasks. If it throws, no further task
// starts.
using Watch = std::function<void(std::size_t done)>;

// Calls `task` once for each number below `tasks`, on up to `threads` threads, of which one is the caller's. The first
// exception of a task is thrown again here, after all threads have ended.
void parallel_for(std::size_t tasks, int threads, const std::function<void(std::size_t)>& task, const Watch& watch);

}  // namespace cfe
