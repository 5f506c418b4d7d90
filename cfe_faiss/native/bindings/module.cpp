#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "core/kernels.h"

NB_MODULE(_native, module) {
  // What lives until the interpreter ends, as the indexes of a notebook do, is not a leak to be reported then.
  nanobind::set_leak_warnings(false);
  cfe::choose_level();
  module.def("level", &cfe::level);
  module.def("available_levels", &cfe::available_levels);
  cfe::bind_checks(module);
  cfe::bind_graph(module);
  cfe::bind_propagation(module);
  cfe::bind_class_centroids(module);
  cfe::bind_blocks(module);
  cfe::bind_grouping(module);
  cfe::bind_grouped(module);
  cfe::bind_kmeans(module);
  cfe::bind_changes(module);
  cfe::bind_read_write_lock(module);
  cfe::bind_rows(module);
  cfe::bind_searcher(module);
  cfe::bind_exact(module);
  cfe::bind_join(module);
  cfe::bind_list_scan(module);
  cfe::bind_similarity(module);
  cfe::bind_single_search(module);
  cfe::bind_topk(module);
}
