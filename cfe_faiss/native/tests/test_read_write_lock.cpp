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
  lock.announce_writer();
  while (!lock.write_within(ReadWriteLock::Patience(1))) {
  }
  lock.withdraw_writer();
}

// As the extension does.
bool enter_reading(ReadWriteLock& lock) {
  if (lock.try_read()) return true;
  const ReadWriteLock::Ticket ticket = lock.announce_reader();
  const bool entered = lock.read_within(kLong, ticket);
  lock.withdraw_reader(ticket);
  return entered;
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
  CHECK(elsewhere([&] { return !lock.try_write() && !lock.try_read() && !lock.read_within(kNone, 0); }));
  lock.leave_writing();
  CHECK(lock.try_read());
  lock.leave_reading();
}

TEST(thread_does_not_wait_for_itself) {
  ReadWriteLock lock;
  CHECK(lock.try_read());
  CHECK(refuses([&] { return lock.try_write(); }) && refuses([&] { return lock.write_within(kLong); }));
  lock.announce_writer();  // another thread waits; current readers may enter again
  CHECK(lock.try_read() && lock.read_within(kNone, 0));
  lock.withdraw_writer();
  for (int time = 0; time < 3; ++time) lock.leave_reading();
  CHECK(lock.try_write());
  CHECK(refuses([&] { return lock.try_write(); }) && refuses([&] { return lock.read_within(kLong, 0); }));
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
  written.announce_writer();
  before_fork();
  after_fork_in_child();
  CHECK(read.try_write() && written.try_read());
  read.leave_reading(before);  // as if nothing had been held
  written.leave_writing(before);
  written.withdraw_writer();
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
  lock.announce_writer();
  CHECK(elsewhere([&] {
    return !lock.try_read() && !lock.read_within(kNone, 0) && !lock.write_within(kNone);  // the first reader is there
  }));
  lock.withdraw_writer();
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
    lock.announce_writer();
    if (!lock.write_within(kLong)) return;
    lock.withdraw_writer();
    wrote = true;
    lock.leave_writing();
  });
  while (elsewhere([&] { return lock.try_read() && (lock.leave_reading(), true); }))  // until the writer waits
    std::this_thread::yield();
  std::thread reader([&] {
    if (!enter_reading(lock)) return;
    read = wrote.load();  // the writer came first
    lock.leave_reading();
  });
  lock.leave_reading();
  writer.join();
  reader.join();
  CHECK(wrote && read);
}

TEST(readers_that_wait_go_before_the_next_writer) {
  ReadWriteLock lock;
  CHECK(lock.try_write());
  ReadWriteLock::Ticket early = 0, late = 0;
  std::atomic<bool> wrote{false};
  early = lock.announce_reader();
  std::thread writer([&] {
    enter_writing(lock);
    wrote = true;
    lock.leave_writing();
  });
  lock.announce_writer();  // and another one
  lock.leave_writing();
  CHECK(elsewhere([&] { return !lock.try_read(); }));  // it came after the writers
  late = lock.announce_reader();
  CHECK(elsewhere([&] { return !lock.read_within(ReadWriteLock::Patience{20}, late); }));
  CHECK(!wrote);  // the first reader is due
  CHECK(lock.read_within(kNone, early));
  lock.withdraw_reader(early);
  CHECK(!wrote);
  lock.leave_reading();
  writer.join();
  CHECK(wrote && lock.read_within(kNone, late));  // after one writer, though another one waits
  lock.withdraw_reader(late);
  lock.withdraw_writer();
  lock.leave_reading();
  lock.leave_reading();  // once too often, without effect
  const ReadWriteLock::Ticket given_up = lock.announce_reader();
  lock.withdraw_reader(given_up);
  enter_writing(lock);
  lock.leave_writing();
  CHECK(lock.try_write());
  lock.leave_writing();
}

TEST(readers_pass_beside_writers_in_a_loop) {
  constexpr int kReads = 300;
  ReadWriteLock lock;
  std::atomic<bool> over{false};
  std::atomic<long> writes{0};
  long most = 0;  // writers that one reader waited for
  std::vector<std::thread> writers;
  writers.reserve(3);
  for (int writer = 0; writer < 3; ++writer)
    writers.emplace_back([&] {
      while (!over) {
        enter_writing(lock);
        ++writes;
        lock.leave_writing();
      }
    });
  for (int read = 0; read < kReads; ++read) {
    CHECK(enter_reading(lock));
    const long before = writes;
    lock.leave_reading();
    if (lock.try_read()) {
      lock.leave_reading();
      continue;
    }
    const ReadWriteLock::Ticket ticket = lock.announce_reader();
    const long announced = writes;
    CHECK(lock.read_within(kLong, ticket));
    lock.withdraw_reader(ticket);
    most = std::max(most, writes - announced);
    CHECK(writes >= before);
    lock.leave_reading();
  }
  over = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(most <= 1);
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
        if (!enter_reading(lock)) return;
        torn = torn || values[0] != values[1] || values[0] < last;
        last = values[0];
        lock.leave_reading();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(!torn && values[0] == 2 * kChanges);
}

}  // namespace cfe
