// Searches for many queries: lists, blocks, and queries in groups.
#include <nanobind/stl/string.h>

#include <array>

#include "bindings/bindings.h"
#include "bindings/filter.h"
#include "core/blocks.h"
#include "core/common.h"
#include "core/kernels.h"
#include "core/list_scan.h"
#include "core/searcher.h"

namespace cfe {

namespace {

void make_filter(Filter* filter, int policy, const Array2<const std::int32_t>& excluded_labels,
                 const Array2<const std::int64_t>& excluded_ids, float low, float high,
                 const Array1<const bool>& allowed, const Array2<const double>& values,
                 const Array2<const double>& limits, std::size_t most_changed) {
  const auto of_labels = enum_of<Policy>("policy", policy);
  new (filter) Filter{of_labels, excluded_labels, excluded_ids, low, high, allowed, values, limits, most_changed};
}

// --- blocks ---

Element element_named(const std::string& name) {
  if (name == "float") return Element::kFloat;
  if (name == "byte") return Element::kByte;
  if (name == "bit") return Element::kBit;
  refuse("element must be \"float\", \"byte\" or \"bit\", got \"", name, "\"");
}

void make_blocks(Blocks* blocks, const Rows& rows, const std::string& element, float rounding_error, Labels references,
                 Ints reference_starts, Floats center, Flags wanted, Flags allowed, Vectors rotation,
                 std::size_t prefix, int threads) {
  const BlocksOptions options{element_named(element),
                              rounding_error,
                              references,
                              reference_starts,
                              center,
                              wanted,
                              allowed,
                              rotation,
                              prefix,
                              threads};
  const LongCall call;
  new (blocks) Blocks(rows, options, call.watch);
}

void search_blocks(const Blocks& blocks, Vectors X, Labels labels, Ints starts, Lists lists, Ints order, Scores D,
                   Ids I, const Filter* filter, bool resume) {
  const LongCall call;
  blocks.search({X, labels, starts, lists, order, D, I, resume, view_of(filter, D.rows, blocks.rows())}, call.watch);
}

// --- queries one by one, and in groups ---

void search(const Searcher& searcher, Vectors X, Labels labels, std::size_t nprobe, bool complete, Scores D, Ids I,
            const Filter* filter) {
  check_shape("X", X, X.rows, searcher.d());
  check_length("labels", labels.size(), X.rows);
  check_results(D, I, X.rows);
  const LongCall call;
  searcher.search(X, labels, {nprobe, complete, view_of(filter, X.rows, searcher.size())}, D, I, call.watch);
}

void search_groups(const Searcher& searcher, Vectors X, Ints rows, Labels labels, Ints order, Ints starts,
                   Labels group_labels, Ints tasks, std::size_t nprobe, Scores D, Ids I, const Filter* filter,
                   int threads, const nb::object& progress) {
  const LongCall call(progress);
  searcher.search_groups({X, rows, labels, order, starts, group_labels, tasks}, nprobe, D, I,
                         view_of(filter, D.rows, searcher.size()), threads, call.watch);
}

nb::tuple route_groups(const Searcher& searcher, Vectors X, Ints rows, Labels labels, Ints order, Ints starts,
                       Labels group_labels, Ints tasks, std::size_t nprobe, int threads) {
  RoutedGroups routed;
  {
    const LongCall call;
    routed = searcher.route_groups({X, rows, labels, order, starts, group_labels, tasks}, nprobe, threads, call.watch);
  }
  return nb::make_tuple(as_array(std::move(routed.order)), as_array(std::move(routed.starts)),
                        as_array(std::move(routed.labels)), as_array(std::move(routed.lists)));
}

// --- given lists ---

using Codewords = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// A product quantizer that keeps its arrays alive.
struct PqCodes {
  Codewords codewords;
  Array2<const float> centroids;

  PqView view(const ListScan& lists) const {
    check_shape("centroids", as_matrix(centroids), lists.rows().nlist(), lists.rows().d());
    return {codewords.shape(0), codewords.shape(1), codewords.data(), centroids.data()};
  }
};

void scan_lists(const ListScan& scan, Vectors X, Labels labels, Lists lists, double margin, Scores D, Ids I,
                const Filter* filter) {
  scan.scan({X, labels, lists, view_of(filter, X.rows, scan.rows().size())}, margin, D, I);
}

void scan_codes(const ListScan& scan, const PqCodes& pq, Vectors X, Labels labels, Lists lists, std::size_t kept,
                Scores D, Ids I, const Filter* filter) {
  scan.scan_codes({X, labels, lists, view_of(filter, X.rows, scan.rows().size())}, pq.view(scan), kept, D, I);
}

void centroids(const ListScan& scan, Ints starts, Labels labels, Matrix<float> means, Matrix<float> class_means,
               Floats center, int policy, int threads) {
  check_length("starts", starts.size(), scan.size() + 1);
  const Metric metric = scan.rows().metric();
  const std::size_t length = ranking_length(metric, scan.rows().d());
  check_shape("means", means, scan.size(), length);
  check_shape("class_means", class_means, labels.size(), length);
  check_length("center", center.size(), metric == Metric::kCosine ? 0 : scan.rows().d());
  require(ascends(starts, labels.size()), "starts must ascend from 0 to the number of labels");
  const LongCall call;
  scan.centroids({starts, labels, means, class_means, center, enum_of<Policy>("policy", policy)}, threads, call.watch);
}

}  // namespace

void bind_search(nb::module_& module) {
  nb::class_<Filter>(module, "Filter")
      .def("__init__", make_filter, "policy"_a, as_is("excluded_labels").none(), as_is("excluded_ids").none(), "low"_a,
           "high"_a, "allowed"_a.none() = nb::none(), "values"_a.none() = nb::none(), "limits"_a.none() = nb::none(),
           "most_changed"_a = 0);
  module.def("has_bytes", [] { return kernels().has_bytes; });
  nb::class_<Blocks>(module, "Blocks")
      .def("__init__", make_blocks, nb::keep_alive<1, 2>(), "rows"_a, "element"_a, "rounding_error"_a, "references"_a,
           "reference_starts"_a, "center"_a, "wanted"_a, "allowed"_a, "rotation"_a, "prefix"_a, "threads"_a)
      .def("search", search_blocks, "X"_a, "labels"_a, "starts"_a, "lists"_a, "order"_a, "D"_a, "I"_a,
           "rules"_a.none() = nb::none(), nb::kw_only(), "resume"_a = false)
      .def_prop_ro("memory", &Blocks::memory)
      .def_prop_ro("element",
                   [](const Blocks& blocks) {
                     constexpr std::array names{"float", "byte", "bit"};
                     return names.at(static_cast<std::size_t>(blocks.element()));
                   })
      .def_prop_ro("rotated", &Blocks::rotated);
  nb::class_<Searcher>(module, "Searcher")
      .def(nb::init<const ListScan&, const ClassCentroids&, double, const Blocks*, Flags>(), "lists"_a, "centroids"_a,
           "margin"_a, "blocks"_a.none(), "changed"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 5>(), without_gil)
      .def("search", search, "X"_a, "labels"_a, "nprobe"_a, "complete"_a, "D"_a, "I"_a, "rules"_a.none() = nb::none())
      .def("search_groups", search_groups, "X"_a, "rows"_a, "labels"_a, "order"_a, "starts"_a, "group_labels"_a,
           "tasks"_a, "nprobe"_a, "D"_a, "I"_a, "rules"_a.none() = nb::none(), nb::kw_only(), "threads"_a = 1,
           "progress"_a = nb::none())
      .def("route_groups", route_groups, "X"_a, "rows"_a, "labels"_a, "order"_a, "starts"_a, "group_labels"_a,
           "tasks"_a, "nprobe"_a, "threads"_a);
  nb::class_<PqCodes>(module, "PqCodes")
      .def(
          "__init__",
          [](PqCodes* pq, const Codewords& codewords, const Array2<const float>& centroids) {
            check_length("codewords[0, 0]", codewords.shape(2), kCodewords);
            new (pq) PqCodes{codewords, centroids};
          },
          as_is("codewords"), as_is("centroids"));
  nb::class_<ListScan>(module, "ListScan")
      .def(nb::init<const Rows&, Labels, Ints>(), "rows"_a, "references"_a, "reference_starts"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), without_gil)
      .def("scan", scan_lists, "X"_a, "labels"_a, "lists"_a, "margin"_a, "D"_a, "I"_a, "rules"_a.none() = nb::none(),
           without_gil)
      .def("scan_codes", scan_codes, "pq"_a, "X"_a, "labels"_a, "lists"_a, "kept"_a, "D"_a, "I"_a,
           "rules"_a.none() = nb::none(), without_gil)
      .def("centroids", centroids, "starts"_a, "labels"_a, "means"_a, "class_means"_a, "center"_a, "policy"_a,
           "threads"_a);
}

}  // namespace cfe
