// Interrupts and progress, noticed between the tasks of a call that has released the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "core/parallel.h"

namespace cfe {

// Returns what notices Ctrl-C a few times a second, and calls `progress`, unless it is None, with the tasks done.
// `release`, unless it is None, is called after each task of the calling thread: it gives back what memory maps take.
inline Watch watch(nanobind::object progress = nanobind::none(), nanobind::object release = nanobind::none()) {
  using Clock = std::chrono::steady_clock;
  return [progress, release, last = Clock::now()](std::size_t done) mutable {
    if (!release.is_none()) {
      const nanobind::gil_scoped_acquire held;
      release();
    }
    const auto now = Clock::now();
    if (now - last < std::chrono::milliseconds(50)) return;
    last = now;
    const nanobind::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    if (!progress.is_none()) progress(done);
  };
}

}  // namespace cfe
