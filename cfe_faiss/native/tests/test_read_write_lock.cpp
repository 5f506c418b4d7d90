#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
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

struct GivenUp : std::exception {};

// As the extension does.
void enter_writing(ReadWriteLock& lock) {
  if (!lock.try_write()) lock.write([] {});
}
void enter_reading(ReadWriteLock& lock) {
  if (!lock.try_read()) lock.read([] {});
}

// Whether a thread that waits gives up at the first check.
bool gives_up(const std::function<void(const ReadWriteLock::Check&)>& enter) {
  try {
    enter([] { throw GivenUp(); });
    return false;
  } catch (const GivenUp&) {
    return true;
  }
}

// Waits until a writer waits for a lock that is read.
template <class Lock>
void await_writer(Lock& lock) {
  const auto enters = [&lock] {
    if (!lock.try_read()) return false;
    lock.leave_reading();
    return true;
  };
  while (std::async(std::launch::async, enters).get()) std::this_thread::yield();
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
  const auto read = [&](const ReadWriteLock::Check& check) { lock.read(check); };
  const auto write = [&](const ReadWriteLock::Check& check) { lock.write(check); };
  CHECK(lock.try_read() && lock.try_read());
  CHECK(elsewhere([&] { return !lock.try_write() && gives_up(write); }));
  lock.leave_reading();
  CHECK(elsewhere([&] { return !lock.try_write(); }));
  lock.leave_reading();
  CHECK(lock.try_write());
  CHECK(elsewhere([&] { return !lock.try_write() && !lock.try_read() && gives_up(read) && gives_up(write); }));
  lock.leave_writing();
  CHECK(lock.try_read());
  lock.leave_reading();
}

TEST(thread_does_not_wait_for_itself) {
  ReadWriteLock lock;
  CHECK(lock.try_read());
  CHECK(refuses([&] { return lock.try_write(); }) && refuses([&] { lock.write([] {}); }));
  std::thread writer([&] {
    lock.write([] {});
    lock.leave_writing();
  });
  await_writer(lock);
  CHECK(lock.try_read());  // current readers may enter again
  lock.read([] {});
  for (int time = 0; time < 3; ++time) lock.leave_reading();
  writer.join();
  CHECK(lock.try_write());
  CHECK(refuses([&] { return lock.try_write(); }) && refuses([&] { lock.read([] {}); }));
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
  bool forked = false;
  elsewhere([&] {
    written.write([&] {  // as where a signal handler forks while its thread waits
      before_fork();
      after_fork_in_child();
      forked = true;
    });
    written.leave_writing();
    return true;
  });
  CHECK(forked && read.try_write() && written.try_read());
  read.leave_reading(before);  // as if nothing had been held
  written.leave_writing(before);
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
  std::atomic<bool> tried{false};
  std::thread writer([&] {
    const bool gave_up = gives_up([&](const ReadWriteLock::Check& check) {
      lock.write([&] {
        if (tried) check();
      });
    });
    CHECK(gave_up);
  });
  await_writer(lock);
  CHECK(elsewhere(
      [&] { return !lock.try_read() && gives_up([&](const ReadWriteLock::Check& check) { lock.read(check); }); }));
  tried = true;
  writer.join();
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
    lock.write([] {});
    wrote = true;
    lock.leave_writing();
  });
  await_writer(lock);
  std::thread reader([&] {
    enter_reading(lock);
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
  std::atomic<int> waiting{0}, wrote{0}, seen{-1};
  std::vector<std::thread> writers;
  std::thread reader([&] {
    bool counted = false;
    lock.read([&] {
      if (!counted) ++waiting;
      counted = true;
    });
    seen = wrote.load();
    while (waiting < 4) std::this_thread::yield();
    lock.leave_reading();
  });
  while (waiting < 1) std::this_thread::yield();
  writers.reserve(2);
  for (int writer = 0; writer < 2; ++writer)
    writers.emplace_back([&] {
      bool counted = false;
      lock.write([&] {
        if (!counted) ++waiting;
        counted = true;
      });
      ++wrote;
      lock.leave_writing();
    });
  while (waiting < 3) std::this_thread::yield();
  lock.leave_writing();
  while (seen < 0) std::this_thread::yield();
  CHECK(seen == 0);                                    // it was due
  CHECK(elsewhere([&] { return !lock.try_read(); }));  // this one came after the writers
  std::thread late([&] {
    lock.read([&] { waiting = 4; });  // the first reader leaves then
    lock.leave_reading();
  });
  late.join();
  reader.join();
  for (std::thread& writer : writers) writer.join();
  CHECK(wrote == 2 && lock.try_write());
  lock.leave_writing();
  lock.leave_reading();  // once too often, without effect
  CHECK(lock.try_write());
  lock.leave_writing();
}

TEST(readers_pass_beside_writers_in_a_loop) {
  constexpr int kReads = 300;
  ReadWriteLock lock;
  std::atomic<bool> over{false};
  std::atomic<long> writes{0};
  int passed_over = 0;  // readers before which more than the writer inside and one more left
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
    enter_reading(lock);
    lock.leave_reading();
    if (lock.try_read()) {
      lock.leave_reading();
      continue;
    }
    const long before = writes;
    lock.read([] {});
    if (writes - before > 2) ++passed_over;
    lock.leave_reading();
  }
  over = true;
  for (std::thread& writer : writers) writer.join();
  CHECK(passed_over < kReads / 4);  // where this thread was interrupted before it waited
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
        enter_reading(lock);
        torn = torn || values[0] != values[1] || values[0] < last;
        last = values[0];
        lock.leave_reading();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(!torn && values[0] == 2 * kChanges);
}

}  // namespace cfe
