#include "core/read_write_lock.h"

#include <cassert>
#include <new>

namespace cfe {

namespace {

bool holds(const std::vector<std::thread::id>& threads, std::thread::id thread) {
  return std::find(threads.begin(), threads.end(), thread) != threads.end();
}

}  // namespace

// Opens a lock taken before a fork, and locks the mutex.
ReadWriteLock::Guard ReadWriteLock::guard() {
  if (forks_.load() != forks_so_far()) {
    while (renewing.test_and_set()) std::this_thread::yield();
    if (forks_.load() != forks_so_far()) {
      new (&mutex_) std::mutex;
      new (&changed_) std::condition_variable;
      new (&readers_) std::vector<std::thread::id>;
      writer_ = {};
      waiting_ = 0;
      forks_.store(forks_so_far());
    }
    renewing.clear();
  }
  return Guard(mutex_);
}

bool ReadWriteLock::open_to_readers() const {
  const auto thread = std::this_thread::get_id();
  if (writer_ == thread)
    throw std::runtime_error("the index (or store) cannot be read while the same thread changes it");
  return writer_ == std::thread::id() && (waiting_ == 0 || holds(readers_, thread));
}

bool ReadWriteLock::open_to_writers() const {
  const auto thread = std::this_thread::get_id();
  if (writer_ == thread || holds(readers_, thread))
    throw std::runtime_error("the index (or store) cannot be changed while the same thread reads or changes it");
  return writer_ == std::thread::id() && readers_.empty();
}

bool ReadWriteLock::add_writer() {
  writer_ = std::this_thread::get_id();
  ++writers_so_far_;
  return true;
}

bool ReadWriteLock::try_write() {
  const Guard held = guard();
  return open_to_writers() && waiting_ == 0 && add_writer();
}

bool ReadWriteLock::read_within(Patience patience) {
  Guard held = guard();
  const auto is_open = [this] { return open_to_readers(); };
  if (!is_open() && !changed_.wait_for(held, patience, is_open)) return false;  // without asking for the time if open
  readers_.push_back(std::this_thread::get_id());
  return true;
}

bool ReadWriteLock::write_within(Patience patience) {
  Guard held = guard();
  return changed_.wait_for(held, patience, [this] { return open_to_writers(); }) && add_writer();
}

void ReadWriteLock::announce() {
  const Guard held = guard();
  ++waiting_;
}

void ReadWriteLock::withdraw() {
  const Guard held = guard();
  if (waiting_ > 0) --waiting_;  // none after a fork
  changed_.notify_all();
}

ReadWriteLock::Entered ReadWriteLock::entered() { return {std::this_thread::get_id(), forks_so_far()}; }

void ReadWriteLock::leave_reading(const Entered& reader) {
  const Guard held = guard();
  if (reader.forks != forks_.load()) return;
  const auto place = std::find(readers_.begin(), readers_.end(), reader.thread);
  assert(place != readers_.end());
  *place = readers_.back();
  readers_.pop_back();
  if (waiting_ > 0 && readers_.empty()) changed_.notify_all();
}

void ReadWriteLock::leave_writing(const Entered& writer) {
  const Guard held = guard();
  if (writer.forks != forks_.load()) return;
  assert(writer_ == writer.thread);
  writer_ = {};
  changed_.notify_all();
}

}  // namespace cfe
