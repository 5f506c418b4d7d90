#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/read_write_lock.h"
#include "tests/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace cfe {

namespace {

constexpr ReadWriteLock::Patience kNone{0}, kLong{60000};

// As the extension does.
void enter_writing(ReadWriteLock& lock) {
  if (lock.try_write()) return;
  lock.announce();
  while (!lock.write_within(ReadWriteLock::Patience(1))) {
  }
  lock.withdraw();
}

// The result of a call in another thread.
template <class Call>
auto elsewhere(const Call& call) {
  return std::async(std::launch::async, call).get();
}

template <class Call>
bool refuses(const Call& call) {
  try {
    static_cast<void>(call());
    return false;
  } catch (const std::runtime_error&) {
    return true;
  }
}

}  // namespace

TEST(readers_share_a_lock_and_a_writer_does_not) {
  ReadWriteLock lock;
  CHECK(lock.try_read() && lock.try_read());
  CHECK(elsewhere([&] { return !lock.try_write() && !lock.write_within(kNone); }));
  lock.leave_reading();
  CHECK(elsewhere([&] { return !lock.try_write(); }));
  lock.leave_reading();
  CHECK(lock.try_write());
  CHECK(elsewhere([&] { return !lock.try_write() && !lock.try_read() && !lock.read_within(kNone); }));
  lock.leave_writing();
  CHECK(lock.try_read());
  lock.leave_reading();
}

TEST(thread_does_not_wait_for_itself) {
  ReadWriteLock lock;
  CHECK(lock.try_read());
  CHECK(refuses([&] { return lock.try_write(); }) && refuses([&] { return lock.write_within(kLong); }));
  lock.announce();  // another thread waits; current readers may enter again
  CHECK(lock.try_read() && lock.read_within(kNone));
  lock.withdraw();
  for (int time = 0; time < 3; ++time) lock.leave_reading();
  CHECK(lock.try_write());
  CHECK(refuses([&] { return lock.try_write(); }) && refuses([&] { return lock.read_within(kLong); }));
  lock.leave_writing();
  CHECK(lock.try_write());
  lock.leave_writing();
}

TEST(lock_is_open_after_a_fork) {
  ReadWriteLock read, written;
#ifdef __SANITIZE_ADDRESS__
  __lsan_disable();  // a child leaves the parent's list of readers behind, as it may be half written
#endif
  CHECK(read.try_read() && written.try_write());
#ifdef __SANITIZE_ADDRESS__
  __lsan_enable();
#endif
  const ReadWriteLock::Entered before = ReadWriteLock::entered();
  written.announce();
  before_fork();
  after_fork_in_child();
  CHECK(read.try_write() && written.try_read());
  read.leave_reading(before);  // as if nothing had been held
  written.leave_writing(before);
  written.withdraw();
  CHECK(elsewhere([&] { return !read.try_read() && !written.try_write(); }));
  read.leave_writing();
  written.leave_reading();
}

TEST(fork_waits_for_a_section) {
  std::atomic<bool> inside{false}, forked{false}, cut{false};
  std::thread section([&] {
    const Unforked here;
    inside = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cut = forked.load();
  });
  while (!inside) std::this_thread::yield();
  before_fork();
  forked = true;
  after_fork_in_parent();
  section.join();
  CHECK(!cut);
  const Unforked one_more;
}

TEST(fork_takes_the_lock_of_a_library) {
  std::mutex library;
  take_at_fork(&library);
  std::atomic<bool> held{false};
  std::thread holder([&] {
    const std::lock_guard<std::mutex> guard(library);
    held = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  while (!held) std::this_thread::yield();
  before_fork();
  CHECK(elsewhere([&] { return !library.try_lock(); }));
  after_fork_in_child();
  holder.join();
  CHECK(library.try_lock());  // held by this thread, as where its signal handler forks
  before_fork();
  after_fork_in_parent();
  library.unlock();
  take_at_fork(nullptr);
}

TEST(writer_that_waits_keeps_new_readers_out_until_it_gives_up) {
  ReadWriteLock lock;
  CHECK(lock.try_read());
  lock.announce();
  CHECK(elsewhere([&] {
    return !lock.try_read() && !lock.read_within(kNone) && !lock.write_within(kNone);  // the first reader is there
  }));
  lock.withdraw();
  CHECK(lock.try_read());
  lock.leave_reading();
  lock.leave_reading();
  CHECK(lock.try_write());
  lock.leave_writing();
}

TEST(who_waits_is_let_in_when_the_other_leaves) {
  ReadWriteLock lock;
  CHECK(lock.try_read());
  std::atomic<bool> wrote{false}, read{false};
  std::thread writer([&] {
    lock.announce();
    if (!lock.write_within(kLong)) return;
    lock.withdraw();
    wrote = true;
    lock.leave_writing();
  });
  while (elsewhere([&] { return lock.try_read() && (lock.leave_reading(), true); }))  // until the writer waits
    std::this_thread::yield();
  std::thread reader([&] {
    if (!lock.read_within(kLong)) return;
    read = wrote.load();  // the writer came first
    lock.leave_reading();
  });
  lock.leave_reading();
  writer.join();
  reader.join();
  CHECK(wrote && read);
}

TEST(readers_never_see_half_of_what_a_writer_does) {
  constexpr long kChanges = 300;
  ReadWriteLock lock;
  std::array<long, 2> values{};  // not atomic: TSan would report a concurrent reader and writer
  std::atomic<bool> torn{false};
  std::vector<std::thread> threads;
  threads.reserve(5);
  for (int writer = 0; writer < 2; ++writer)
    threads.emplace_back([&] {
      for (long change = 0; change < kChanges; ++change) {
        enter_writing(lock);
        for (long& value : values) ++value;
        lock.leave_writing();
      }
    });
  for (int reader = 0; reader < 3; ++reader)
    threads.emplace_back([&] {
      for (long last = 0; last < 2 * kChanges;) {
        if (!lock.read_within(kLong)) return;
        torn = torn || values[0] != values[1] || values[0] < last;
        last = values[0];
        lock.leave_reading();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(!torn && values[0] == 2 * kChanges);
}

}  // namespace cfe
