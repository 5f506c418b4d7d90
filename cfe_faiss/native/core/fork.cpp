#include "core/fork.h"

#include <atomic>
#include <new>
#include <shared_mutex>

namespace cfe {

namespace {

std::shared_mutex sections;  // sections share it, a fork is alone
std::atomic<std::uint64_t> forks{0};

}  // namespace

Unforked::Unforked() { sections.lock_shared(); }
Unforked::~Unforked() { sections.unlock_shared(); }

void before_fork() { sections.lock(); }

void after_fork_in_parent() { sections.unlock(); }

void after_fork_in_child() {
  new (&sections) std::shared_mutex;  // threads that waited for the old one are no more
  forks.fetch_add(1);
}

std::uint64_t forks_so_far() { return forks.load(); }

}  // namespace cfe
