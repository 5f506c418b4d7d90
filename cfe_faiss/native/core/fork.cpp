#include "core/fork.h"

#include <chrono>
#include <condition_variable>
#include <new>
#include <thread>

namespace cfe {

namespace {

std::mutex mutex;
std::condition_variable changed;
std::size_t inside = 0;  // threads in sections
bool forking = false;
std::mutex* library_lock = nullptr;
bool taken = false;  // whether the fork took it
std::atomic<std::uint64_t> forks{0};
thread_local std::size_t depth = 0;  // sections of this thread

// A signal handler may fork while its own thread holds the lock, so a fork does not wait for ever.
void take_library_lock() {
  constexpr int milliseconds = 1000;
  for (int tried = 0; library_lock != nullptr && tried < milliseconds; ++tried) {
    taken = library_lock->try_lock();
    if (taken) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void leave_library_lock() {
  if (taken) library_lock->unlock();
  taken = false;
}

}  // namespace

std::atomic_flag renewing;

void take_at_fork(std::mutex* lock) { library_lock = lock; }

Unforked::Unforked() {
  if (depth++ > 0) return;
  std::unique_lock<std::mutex> guard(mutex);
  changed.wait(guard, [] { return !forking; });
  ++inside;
}

Unforked::~Unforked() {
  if (--depth > 0) return;
  const std::lock_guard<std::mutex> guard(mutex);
  --inside;
  if (forking) changed.notify_all();
}

void before_fork() {
  {
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [] { return !forking; });
    forking = true;
    changed.wait(guard, [] { return inside == (depth > 0 ? 1 : 0); });
  }
  take_library_lock();
}

void after_fork_in_parent() {
  leave_library_lock();
  const std::lock_guard<std::mutex> guard(mutex);
  forking = false;
  changed.notify_all();
}

void after_fork_in_child() {
  leave_library_lock();
  new (&mutex) std::mutex;  // threads that waited for the old mutex do not exist here
  new (&changed) std::condition_variable;
  inside = depth > 0 ? 1 : 0;
  forking = false;
  renewing.clear();
  forks.fetch_add(1);
}

std::uint64_t forks_so_far() { return forks.load(); }

}  // namespace cfe
