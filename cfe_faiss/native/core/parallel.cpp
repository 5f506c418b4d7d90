#include "core/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>
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

}  // namespace

void parallel_for(std::size_t tasks, int threads, const std::function<void(std::size_t)>& task, const Watch& watch) {
  Work work(tasks, task);
  const auto others =
      std::min<std::size_t>(threads > 1 ? static_cast<std::size_t>(threads - 1) : 0, tasks ? tasks - 1 : 0);
  const auto take_all = [&work](const Watch& told) {
    try {
      while (work.take_one())
        if (told) told(work.done());
    } catch (...) {
      work.fail(std::current_exception());
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (std::size_t i = 0; i < others; ++i) helpers.emplace_back(take_all, Watch());
  } catch (const std::exception&) {  // the system refuses: fewer helpers do
  }
  take_all(watch);
  for (std::thread& helper : helpers) helper.join();
  work.throw_error();
}

}  // namespace cfe
