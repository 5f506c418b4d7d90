#include "core/read_write_lock.h"

#include <new>

namespace cfe {

namespace {

constexpr std::chrono::milliseconds kLongestReaderPhase{10};
constexpr std::chrono::milliseconds kPatience{50};  // interval of checks

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
      waiting_writers_ = waiting_readers_ = due_readers_ = 0;
      serves_due_readers_ = false;
      readers_until_ = {};
      forks_.store(forks_so_far());
    }
    renewing.clear();
  }
  return Guard(mutex_);
}

bool ReadWriteLock::open_to_readers(Ticket ticket) const {
  const auto thread = std::this_thread::get_id();
  if (writer_ == thread)
    throw std::runtime_error("the index (or store) cannot be read while the same thread changes it");
  if (writer_ != std::thread::id()) return false;
  return waiting_writers_ == 0 || ticket != writers_left_ || holds(readers_, thread) || Clock::now() < readers_until_;
}

bool ReadWriteLock::open_to_writers() const {
  const auto thread = std::this_thread::get_id();
  if (writer_ == thread || holds(readers_, thread))
    throw std::runtime_error("the index (or store) cannot be changed while the same thread reads or changes it");
  return writer_ == std::thread::id() && readers_.empty() && due_readers_ == 0 && Clock::now() >= readers_until_;
}

bool ReadWriteLock::add_writer() {
  writer_ = std::this_thread::get_id();
  writer_entered_ = Clock::now();
  serves_due_readers_ = false;
  ++writers_so_far_;
  return true;
}

bool ReadWriteLock::try_write() {
  const Guard held = guard();
  return open_to_writers() && waiting_writers_ == 0 && add_writer();
}

bool ReadWriteLock::try_read() {
  const Guard held = guard();
  if (!open_to_readers(writers_left_)) return false;
  readers_.push_back(std::this_thread::get_id());
  return true;
}

// Returns once the lock is open, with the mutex locked. Calls `withdraw` then, or when the thread gives up.
template <class IsOpen, class Withdraw>
void ReadWriteLock::wait(Guard& held, const IsOpen& is_open, const Withdraw& withdraw, const Check& check) {
  try {
    for (auto next = Clock::now() + kPatience; !is_open();) {
      const auto now = Clock::now();
      if (now < next) {
        changed_.wait_until(held, now < readers_until_ ? std::min(readers_until_, next) : next);
        continue;
      }
      held.unlock();
      check();
      held = guard();
      next = Clock::now() + kPatience;
    }
  } catch (...) {
    if (!held.owns_lock()) held = guard();
    withdraw();
    changed_.notify_all();
    throw;
  }
  withdraw();
}

void ReadWriteLock::read(const Check& check) {
  Guard held = guard();
  const Ticket ticket = writers_left_;
  ++waiting_readers_;
  const auto withdraw = [&] {
    std::size_t& readers = ticket == writers_left_ ? waiting_readers_ : due_readers_;
    if (readers > 0) --readers;  // none after a fork
  };
  wait(
      held, [&] { return open_to_readers(ticket); }, withdraw, check);
  readers_.push_back(std::this_thread::get_id());
}

void ReadWriteLock::write(const Check& check) {
  Guard held = guard();
  ++waiting_writers_;
  const auto withdraw = [&] {
    if (waiting_writers_ > 0) --waiting_writers_;  // none after a fork
  };
  wait(
      held, [&] { return open_to_writers(); }, withdraw, check);
  add_writer();
}

ReadWriteLock::Entered ReadWriteLock::entered() { return {std::this_thread::get_id(), forks_so_far()}; }

void ReadWriteLock::leave_reading(const Entered& reader) {
  const Guard held = guard();
  if (reader.forks != forks_.load()) return;
  const auto place = std::find(readers_.begin(), readers_.end(), reader.thread);
  if (place == readers_.end()) return;
  *place = readers_.back();
  readers_.pop_back();
  if (serves_due_readers_) {
    const auto now = Clock::now();
    readers_until_ = now + std::min<Clock::duration>(now - writer_entered_, kLongestReaderPhase);
    serves_due_readers_ = false;
  }
  if (waiting_writers_ > 0 && readers_.empty()) changed_.notify_all();
}

void ReadWriteLock::leave_writing(const Entered& writer) {
  const Guard held = guard();
  if (writer.forks != forks_.load()) return;
  if (writer_ != writer.thread) return;
  writer_ = {};
  ++writers_left_;
  due_readers_ += waiting_readers_;
  serves_due_readers_ = waiting_readers_ > 0;
  waiting_readers_ = 0;
  changed_.notify_all();
}

}  // namespace cfe
