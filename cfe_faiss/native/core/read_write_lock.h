// Any number of readers at once, or one writer; a waiting writer goes before new readers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/fork.h"

namespace cfe {

// A reader may enter once more, even if a writer waits. A thread that would wait for itself gets a std::runtime_error.
// Threads wait for a while at a time, so that a caller can look after other things in between.
//
// In the child of a fork the lock is open: the threads that held it or waited for it are no more. Whoever has entered
// before a fork does not leave it afterwards.
class ReadWriteLock {
 public:
  using Patience = std::chrono::milliseconds;

  // Enters at once, or returns false.
  bool try_read();
  bool try_write();
  // Enters within `patience`, or returns false. A writer that waits must have announced itself.
  bool read_within(Patience patience);
  bool write_within(Patience patience);
  // From here to `withdraw`, new readers wait for a writer that waits.
  void announce();
  void withdraw();

  // Who has entered, and in which process.
  struct Entered {
    std::thread::id thread = std::this_thread::get_id();
    std::uint64_t forks = 0;
  };
  static Entered entered();
  void leave_reading(const Entered& reader = entered());
  void leave_writing(const Entered& writer = entered());

  // How many writers have entered, for whoever is inside: what was worked out then holds as long as there are no more.
  std::uint64_t writers_so_far() const { return writers_so_far_; }

 private:
  using Guard = std::unique_lock<std::mutex>;

  Guard guard();
  bool open_to_readers() const;
  bool open_to_writers() const;
  void add_writer();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread::id> readers_;  // one for each time that a thread has entered
  std::thread::id writer_;                // while it writes
  std::size_t waiting_ = 0;
  std::uint64_t writers_so_far_ = 0;
  std::atomic<std::uint64_t> forks_ = forks_so_far();  // of the process that uses the lock
};

}  // namespace cfe
