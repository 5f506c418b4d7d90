#include "core/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace cfe {

namespace {

class Work {
 public:
  Work(std::size_t tasks, const std::function<void(std::size_t)>& task) : tasks_(tasks), task_(task) {}

  // Takes the next task; false if there is none left or one has failed.
  bool take_one() {
    const std::size_t number = next_.fetch_add(1);
    if (number >= tasks_ || stop_.load()) return false;
    task_(number);
    done_.fetch_add(1);
    return true;
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::move(error);
    stop_.store(true);
  }
  void throw_error() const {
    if (error_) std::rethrow_exception(error_);
  }
  std::size_t done() const { return done_.load(); }

 private:
  const std::size_t tasks_;
  const std::function<void(std::size_t)>& task_;
  std::atomic<std::size_t> next_{0}, done_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

// Starts up to `threads` threads; fewer if the system refuses. Returns false if there are fewer.
bool start(std::size_t threads, const std::function<void()>& help, std::vector<std::thread>& helpers) {
  try {
    for (std::size_t i = 0; i < threads; ++i) helpers.emplace_back(help);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

void parallel_for(std::size_t tasks, int threads, const std::function<void(std::size_t)>& task, const Watch& watch) {
  Work work(tasks, task);
  const auto others =
      std::min<std::size_t>(threads > 1 ? static_cast<std::size_t>(threads - 1) : 0, tasks ? tasks - 1 : 0);
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(others);
    const auto help = [&work] {
      try {
        while (work.take_one()) {
        }
      } catch (...) {
        work.fail(std::current_exception());
      }
    };
    static_cast<void>(start(others, help, helpers));
    while (work.take_one())
      if (watch) watch(work.done());
  } catch (...) {
    work.fail(std::current_exception());
  }
  for (std::thread& helper : helpers) helper.join();
  work.throw_error();
}

}  // namespace cfe
