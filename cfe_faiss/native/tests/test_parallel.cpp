#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "tests/check.h"

namespace cfe {

TEST(each_task_runs_once) {
  for (const int threads : {0, 1, 2, 5})
    for (const std::size_t tasks : {0, 1, 2, 3, 100}) {
      std::vector<int> runs(tasks);  // not atomic: TSan would see two threads at one task
      parallel_for(
          tasks, threads, [&](std::size_t task) { ++runs[task]; }, nullptr);
      CHECK(runs == std::vector<int>(tasks, 1));
    }
}

TEST(tasks_run_on_as_many_threads_as_wanted) {
  for (const int threads : {1, 2, 3}) {
    std::atomic<int> waiting{0};
    parallel_for(
        static_cast<std::size_t>(threads), threads,
        [&](std::size_t) {  // ends only when all run at once
          waiting.fetch_add(1);
          while (waiting.load() < threads) std::this_thread::yield();
        },
        nullptr);
    CHECK(waiting.load() == threads);
  }
}

TEST(exception_of_a_task_comes_out_and_ends_the_call) {
  for (const int threads : {1, 2, 4}) {
    std::atomic<std::size_t> begun{0};
    const auto task = [&](std::size_t number) {
      begun.fetch_add(1);
      if (number == 3) throw std::out_of_range("task three");
      if (number > 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    CHECK_THROWS(std::out_of_range, "task three", parallel_for(100000, threads, task, nullptr));
    CHECK(begun.load() < 100000);
  }
}

TEST(only_the_first_exception_comes_out) {
  const auto task = [](std::size_t) { throw std::runtime_error("one of many"); };
  CHECK_THROWS(std::runtime_error, "one of many", parallel_for(50, 4, task, nullptr));
}

TEST(watch_runs_in_the_calling_thread_and_counts_up) {
  const auto caller = std::this_thread::get_id();
  std::size_t last = 0;
  bool elsewhere = false, ascending = true;
  const Watch watch = [&](std::size_t done) {
    elsewhere |= std::this_thread::get_id() != caller;
    ascending &= done >= last && done <= 200;
    last = done;
  };
  parallel_for(
      200, 3, [](std::size_t) {}, watch);
  CHECK(!elsewhere);
  CHECK(ascending);
}

TEST(watch_sees_every_task_of_a_single_thread) {
  std::vector<std::size_t> seen;
  parallel_for(
      3, 1, [](std::size_t) {}, [&](std::size_t done) { seen.push_back(done); });
  CHECK((seen == std::vector<std::size_t>{1, 2, 3}));
}

TEST(watch_that_throws_stops_tasks_that_have_not_begun) {
  for (const int threads : {1, 3}) {
    std::atomic<std::size_t> begun{0};
    const Watch watch = [](std::size_t) { throw std::runtime_error("interrupted"); };
    const auto task = [&](std::size_t) {
      begun.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    CHECK_THROWS(std::runtime_error, "interrupted", parallel_for(10000, threads, task, watch));
    CHECK(begun.load() < 10000);
  }
}

TEST(calls_side_by_side_do_not_disturb_each_other) {
  std::vector<std::size_t> sums(4);
  std::vector<std::thread> callers;
  callers.reserve(sums.size());
  for (std::size_t& sum : sums)
    callers.emplace_back([&sum] {
      std::atomic<std::size_t> total{0};
      parallel_for(
          1000, 2, [&](std::size_t task) { total.fetch_add(task); }, nullptr);
      sum = total.load();
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(sums == std::vector<std::size_t>(4, 999 * 1000 / 2));
}

}  // namespace cfe
