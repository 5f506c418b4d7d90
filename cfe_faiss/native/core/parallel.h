// Tasks on several threads that live as long as one call: no pool outlives it, so a process may fork between calls.
#pragma once

#include <functional>

#include "core/common.h"

namespace cfe {

// Called in the calling thread between two tasks, with the number of finished tasks. If it throws, no further task
// starts.
using Watch = std::function<void(std::size_t done)>;

// Calls `task` once for each number below `tasks`, on up to `threads` threads, of which one is the caller's. The first
// exception of a task is thrown again here, after all threads have ended. Without memory or threads, the caller's
// thread takes all tasks.
void parallel_for(std::size_t tasks, int threads, const std::function<void(std::size_t)>& task, const Watch& watch);

// Calls `task(first, stop)` for runs of up to `most` of some numbered things.
template <class Task>
void parallel_runs(std::size_t number, std::size_t most, int threads, const Task& task, const Watch& watch) {
  const auto run = [&](std::size_t i) { task(i * most, std::min(number, (i + 1) * most)); };
  parallel_for((number + most - 1) / most, threads, run, watch);
}

}  // namespace cfe
