#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "core/kernels.h"

NB_MODULE(_native, module) {
  // Indexes that live until the interpreter ends, as in a notebook, are not leaks.
  nanobind::set_leak_warnings(false);
  cfe::choose_level();
  module.attr("INTERFACE") = CFE_INTERFACE;
  module.def("level", &cfe::level);
  module.def("available_levels", &cfe::available_levels);
  cfe::bind_changes(module);
  cfe::bind_coarse(module);
  cfe::bind_graph(module);
  cfe::bind_locks(module);
  cfe::bind_pairs(module);
  cfe::bind_rows(module);
  cfe::bind_search(module);
  cfe::bind_single_search(module);
}
