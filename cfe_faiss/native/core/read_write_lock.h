// Several readers, or one writer. A waiting writer goes before new readers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/fork.h"

namespace cfe {

// A reader may enter again, even if a writer waits. A thread that would wait for itself gets a std::runtime_error.
// Waiting has a time limit, so that the caller can check for signals in between.
//
// In the child of a fork the lock is open, as its threads do not exist there. A thread that entered before a fork does
// not leave in the child.
class ReadWriteLock {
 public:
  using Patience = std::chrono::milliseconds;

  // Enters at once, or returns false.
  bool try_read() { return read_within(Patience{0}); }
  bool try_write();
  // Enters within `patience`, or returns false. A waiting writer must have announced itself.
  bool read_within(Patience patience);
  bool write_within(Patience patience);
  // Until `withdraw`, new readers wait for a waiting writer.
  void announce();
  void withdraw();

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

  Guard guard();
  bool open_to_readers() const;
  bool open_to_writers() const;
  bool add_writer();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread::id> readers_;  // one entry for each time that a thread has entered
  std::thread::id writer_;                // while it writes
  std::size_t waiting_ = 0;
  std::uint64_t writers_so_far_ = 0;
  std::atomic<std::uint64_t> forks_ = forks_so_far();  // of the process that uses the lock
};

}  // namespace cfe
