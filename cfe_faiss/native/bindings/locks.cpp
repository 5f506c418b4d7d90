#include <nanobind/stl/shared_ptr.h>

#include "bindings/bindings.h"
#include "core/read_write_lock.h"

namespace cfe {

namespace {

// Throws on Ctrl-C.
void check_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void enter_writing(ReadWriteLock& lock) {
  if (lock.try_write()) return;
  const nb::gil_scoped_release released;
  lock.write(check_signals);
}

// Token for `with`. Its destructor leaves the lock, too: an exception between two lines of Python may skip `__exit__`,
// but it does not keep an object alive. `make` makes the value of `as` inside the lock: a Python function that enters
// could be interrupted halfway, and the traceback would keep the token, and thus the lock.
template <void (*enter)(ReadWriteLock&), void (ReadWriteLock::*leave)(const ReadWriteLock::Entered&)>
class Held {
 public:
  Held(std::shared_ptr<ReadWriteLock> lock, nb::object make) : lock_(std::move(lock)), make_(std::move(make)) {}
  Held(const Held&) = delete;
  Held(Held&&) = default;
  Held& operator=(const Held&) = delete;
  Held& operator=(Held&&) = delete;
  ~Held() { leave_now(); }

  nb::object enter_now() {
    if (held_) throw std::runtime_error("a lock cannot be entered twice by one token");
    enter(*lock_);
    entered_ = ReadWriteLock::entered();
    held_ = true;
    if (make_.is_none()) return nb::none();
    try {
      return make_();
    } catch (...) {
      leave_now();
      throw;
    }
  }
  void leave_now() {
    if (lock_ && held_) ((*lock_).*leave)(entered_);
    held_ = false;
  }

 private:
  std::shared_ptr<ReadWriteLock> lock_;
  nb::object make_;
  ReadWriteLock::Entered entered_;
  bool held_ = false;
};

// Section for `with`; see core/fork.h.
class Section {
 public:
  void enter_now() {
    const nb::gil_scoped_release released;
    section_.emplace();
  }
  void leave_now() { section_.reset(); }

 private:
  std::optional<Unforked> section_;
};

using Reading = Held<enter_reading, &ReadWriteLock::leave_reading>;
using Writing = Held<enter_writing, &ReadWriteLock::leave_writing>;

template <class Token>
nb::class_<Token> bind_token(nb::module_& module, const char* name) {
  return nb::class_<Token>(module, name)
      .def("__enter__", &Token::enter_now)
      .def(
          "__exit__", [](Token& token, nb::handle, nb::handle, nb::handle) { token.leave_now(); }, "kind"_a.none(),
          "value"_a.none(), "traceback"_a.none());
}

}  // namespace

void enter_reading(ReadWriteLock& lock) {
  if (lock.try_read()) return;
  const nb::gil_scoped_release released;
  lock.read(check_signals);
}

void bind_locks(nb::module_& module) {
  module.def("before_fork", [] {
    const nb::gil_scoped_release released;  // a section may wait for the GIL
    before_fork();
  });
  module.def(
      "take_at_fork", [](std::uintptr_t lock) { take_at_fork(reinterpret_cast<std::mutex*>(lock)); }, "address"_a);
  module.def("after_fork_in_parent", after_fork_in_parent);
  module.def("after_fork_in_child", after_fork_in_child);
  bind_token<Section>(module, "Unforked").def(nb::init<>());
  bind_token<Reading>(module, "Reading");
  bind_token<Writing>(module, "Writing");
  using Shared = std::shared_ptr<ReadWriteLock>;  // keeps the Python object alive
  nb::class_<ReadWriteLock>(module, "ReadWriteLock")
      .def(nb::init<>())
      .def(
          "reading", [](Shared lock, nb::object make) { return Reading(std::move(lock), std::move(make)); },
          "make"_a = nb::none())
      .def(
          "writing", [](Shared lock, nb::object make) { return Writing(std::move(lock), std::move(make)); },
          "make"_a = nb::none());
}

}  // namespace cfe
