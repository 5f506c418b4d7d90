// Scratch memory of the threads of one call, reused from task to task.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/common.h"

namespace cfe {

template <class Scratch>
class ScratchPool {
 public:
  // Held by a task while it runs.
  class Lease : Fixed {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
    ~Lease() { pool_.give_back(std::move(scratch_)); }
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  // Keeps up to `most` scratch objects.
  explicit ScratchPool(std::size_t most) { free_.reserve(most); }

 private:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.size() < free_.capacity()) free_.push_back(std::move(scratch));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

}  // namespace cfe
