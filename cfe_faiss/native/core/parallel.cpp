#include "core/parallel.h"

#include <atomic>
#include <exception>
#include <thread>

namespace cfe {

void parallel_for(std::size_t tasks, int threads, const std::function<void(std::size_t)>& task, const Watch& watch) {
  std::atomic<std::size_t> next{0}, done{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first one
  const auto take_all = [&](const Watch& report) {
    try {
      for (std::size_t number = next++; number < tasks && !failed; number = next++) {
        task(number);
        ++done;
        if (report) report(done);
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  const std::size_t others = threads > 1 && tasks > 1 ? std::min<std::size_t>(threads, tasks) - 1 : 0;
  std::vector<std::thread> helpers;
  for (std::size_t i = 0; i < others; ++i) {
    try {
      helpers.emplace_back(take_all, Watch());
    } catch (const std::exception&) {
      break;  // the system refuses: fewer helpers do
    }
  }
  take_all(watch);
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace cfe
