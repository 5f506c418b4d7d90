#include "core/fork.h"

#include <condition_variable>
#include <mutex>
#include <new>

namespace cfe {

namespace {

std::mutex mutex;
std::condition_variable changed;
std::size_t inside = 0;  // threads in sections
bool forking = false;
std::atomic<std::uint64_t> forks{0};
thread_local std::size_t depth = 0;  // sections of this thread

}  // namespace

std::atomic_flag renewing;

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
  std::unique_lock<std::mutex> guard(mutex);
  changed.wait(guard, [] { return !forking; });
  forking = true;
  changed.wait(guard, [] { return inside == (depth > 0 ? 1 : 0); });
}

void after_fork_in_parent() {
  const std::lock_guard<std::mutex> guard(mutex);
  forking = false;
  changed.notify_all();
}

void after_fork_in_child() {
  new (&mutex) std::mutex;  // threads that waited for the old mutex do not exist here
  new (&changed) std::condition_variable;
  inside = depth > 0 ? 1 : 0;
  forking = false;
  renewing.clear();
  forks.fetch_add(1);
}

std::uint64_t forks_so_far() { return forks.load(); }

}  // namespace cfe
