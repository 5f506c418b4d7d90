// Several readers, or one writer, in fair phases: a waiting writer goes before new readers, and when a writer leaves,
// the readers that wait go before the next writer. So a reader waits for one writer at most. Once the first of these
// readers has left, the lock stays open to readers for as long as that took, from the start of the writer on, and for
// 10 ms at most: the first search after a change renews derived data, and others profit from it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/fork.h"

namespace cfe {

// A reader may enter again, even if a writer waits. A thread that would wait for itself gets a std::runtime_error.
//
// In the child of a fork the lock is open, as its threads do not exist there. A thread that entered before a fork does
// not leave in the child.
class ReadWriteLock {
 public:
  // Called every 50 ms by a thread that waits, outside the lock. If it throws, the thread gives up.
  using Check = std::function<void()>;

  // Enters at once, or returns false.
  bool try_read();
  bool try_write();
  void read(const Check& check);
  void write(const Check& check);

  // The thread that entered, and its process.
  struct Entered {
    std::thread::id thread = std::this_thread::get_id();
    std::uint64_t forks = 0;
  };
  static Entered entered();
  void leave_reading(const Entered& reader = entered());
  void leave_writing(const Entered& writer = entered());

  // Number of writers so far, for threads inside the lock; cached values stay valid until the next write.
  std::uint64_t writers_so_far() const { return writers_so_far_; }

 private:
  using Guard = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  // Number of writers that had left when a reader came.
  using Ticket = std::uint64_t;

  Guard guard();
  bool open_to_readers(Ticket ticket) const;
  bool open_to_writers() const;
  bool add_writer();
  template <class IsOpen, class Withdraw>
  void wait(Guard& held, const IsOpen& is_open, const Withdraw& withdraw, const Check& check);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread::id> readers_;  // one entry for each time that a thread has entered
  std::thread::id writer_;                // while it writes
  std::size_t waiting_writers_ = 0;
  std::size_t waiting_readers_ = 0;  // that came after the last writer left
  std::size_t due_readers_ = 0;      // that came before, and are not inside yet
  Ticket writers_left_ = 0;
  Clock::time_point writer_entered_, readers_until_;
  bool serves_due_readers_ = false;  // none of the readers that waited for the last writer has left
  std::uint64_t writers_so_far_ = 0;
  std::atomic<std::uint64_t> forks_ = forks_so_far();  // of the process that uses the lock
};

}  // namespace cfe
