// What each file of this folder adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace cfe {

namespace nb = nanobind;

void bind_checks(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_propagation(nb::module_& module);
void bind_class_centroids(nb::module_& module);
void bind_blocks(nb::module_& module);
void bind_grouping(nb::module_& module);
void bind_grouped(nb::module_& module);
void bind_kmeans(nb::module_& module);
void bind_exact(nb::module_& module);
void bind_join(nb::module_& module);
void bind_list_scan(nb::module_& module);
void bind_changes(nb::module_& module);
void bind_read_write_lock(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_searcher(nb::module_& module);
void bind_similarity(nb::module_& module);
void bind_single_search(nb::module_& module);
void bind_topk(nb::module_& module);

}  // namespace cfe
