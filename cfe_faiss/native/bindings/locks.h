// The lock of an index in Python.
#pragma once

#include "core/read_write_lock.h"

namespace cfe {

// The Python object. Tokens may outlive it.
struct SharedLock {
  std::shared_ptr<ReadWriteLock> lock = std::make_shared<ReadWriteLock>();
};

// Enters for reading, without the GIL while it waits. Throws on Ctrl-C.
void enter_reading(ReadWriteLock& lock);

}  // namespace cfe
