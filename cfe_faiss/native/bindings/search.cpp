// Searches for many queries: lists, blocks, and queries in groups.
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "core/blocks.h"
#include "core/common.h"
#include "core/grouping.h"
#include "core/kernels.h"
#include "core/list_scan.h"
#include "core/searcher.h"

namespace cfe {

namespace {

// --- blocks ---

Element element_named(const std::string& name) {
  if (name == "float") return Element::kFloat;
  if (name == "byte") return Element::kByte;
  throw nb::value_error(("element must be \"float\" or \"byte\", got \"" + name + "\"").c_str());
}

void make_blocks(Blocks* blocks, const Rows& rows, const std::string& element, float rounding_error,
                 const Labels& references, const Ints& reference_starts, const Flags& wanted, const Flags& allowed,
                 const Vectors& rotation, std::size_t prefix, int threads) {
  const BlocksOptions options{element_named(element),    rounding_error,  as_span(references),
                              as_span(reference_starts), as_span(wanted), as_span(allowed),
                              as_matrix(rotation),       prefix,          threads};
  const LongCall call;
  new (blocks) Blocks(rows, options, call.watch);
}

void search_blocks(const Blocks& blocks, const Vectors& X, const Labels& labels, const Ints& starts,
                   const Array2<const std::int64_t>& lists, const Ints& order, const Scores& D, const Ids& I,
                   bool deduplicate, bool resume, int threads, const nb::object& progress) {
  const LongCall call(progress);
  blocks.search({as_matrix(X), as_span(labels), as_span(starts), as_matrix(lists), as_span(order), as_matrix(D),
                 as_matrix(I), deduplicate, resume},
                threads, call.watch);
}

// --- groups of queries ---

void check_borders(const char* name, const Ints& borders, std::size_t rows) {
  if (!ascends(as_span(borders), rows))
    throw nb::value_error((std::string(name) + " must run from 0 to the number of rows").c_str());
}

nb::tuple halve_groups(const Vectors& X, const Ints& borders, std::size_t largest, int threads) {
  check_borders("borders", borders, X.shape(0));
  if (largest == 0) throw nb::value_error("largest must be at least 1");
  NearGroups groups;
  {
    const LongCall call;
    groups = halve(as_matrix(X), as_span(borders), largest, threads, call.watch);
  }
  return nb::make_tuple(as_array(std::move(groups.order)), as_array(std::move(groups.starts)),
                        as_array(std::move(groups.of_group)));
}

void arrange_groups(const Vectors& X, const Ints& order, const Ints& starts, const Array2<float>& arranged,
                    const Array2<float>& means, int threads) {
  check_borders("starts", starts, order.shape(0));
  check_length("arranged", arranged.shape(0), order.shape(0));
  check_length("means", means.shape(0) + 1, starts.shape(0));
  check_length("a row of arranged", arranged.shape(1), X.shape(1));
  check_length("a row of means", means.shape(1), X.shape(1));
  const LongCall call;
  if (!all_below(as_span(order), X.shape(0))) throw nb::value_error("order must hold rows of X");
  arrange(as_matrix(X), as_span(order), as_span(starts), as_matrix(arranged), as_matrix(means), threads, call.watch);
}

// --- queries one by one, and in groups ---

bool search_single(const Searcher& searcher, const Vectors& xq, std::int64_t label, std::size_t nprobe, bool complete,
                   const Scores& D, const Ids& I) {
  check_length("xq", xq.shape(0), 1);
  check_length("a row of xq", xq.shape(1), searcher.d());
  check_results(D, I, 1);
  const nb::gil_scoped_release released;
  return searcher.search_single({xq.data(), xq.shape(1)}, label, nprobe, complete, {D.data(), I.data(), D.shape(1)});
}

void search(const Searcher& searcher, const Vectors& X, const Labels& labels, std::size_t nprobe, bool complete,
            const Flags& allowed, const Scores& D, const Ids& I, int threads, nb::object progress) {
  check_length("a row of X", X.shape(1), searcher.d());
  check_length("labels", labels.shape(0), X.shape(0));
  if (allowed.shape(0) != 0) check_length("allowed", allowed.shape(0), searcher.size());
  check_results(D, I, X.shape(0));
  const LongCall call(std::move(progress));
  searcher.search(as_matrix(X), as_span(labels), {nprobe, complete, as_span(allowed)}, as_matrix(D), as_matrix(I),
                  threads, call.watch);
}

void search_groups(const Searcher& searcher, const Vectors& X, const Ints& rows, const Labels& labels,
                   const Ints& order, const Ints& starts, const Labels& group_labels, const Ints& tasks,
                   std::size_t nprobe, const Scores& D, const Ids& I, int threads, const nb::object& progress) {
  const LongCall call(progress);
  searcher.search_groups({as_matrix(X), as_span(rows), as_span(labels), as_span(order), as_span(starts),
                          as_span(group_labels), as_span(tasks), as_matrix(D), as_matrix(I)},
                         nprobe, threads, call.watch);
}

void make_searcher(Searcher* searcher, const ListScan& lists, const ClassCentroids& centroids, double margin,
                   const Blocks* blocks, const Flags& changed) {
  new (searcher) Searcher(lists, centroids, margin, blocks, as_span(changed));
}

// --- given lists ---

using Codewords = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// A product quantizer that keeps its arrays alive.
struct PqCodes {
  Codewords codewords;
  Vectors centroids;

  PqView view(const ListScan& lists) const {
    check_length("centroids", centroids.shape(0), lists.rows().nlist());
    check_length("centroids[0]", centroids.shape(1), lists.rows().d());
    return {codewords.shape(0), codewords.shape(1), codewords.data(), centroids.data()};
  }
};

void make_scan(ListScan* scan, const Rows& rows, const Labels& references, const Ints& reference_starts) {
  const nb::gil_scoped_release released;
  new (scan) ListScan(rows, as_span(references), as_span(reference_starts));
}

void scan_lists(const ListScan& scan, const Vectors& X, const Labels& labels, const Array2<const std::int64_t>& lists,
                const Flags& allowed, double margin, const Scores& D, const Ids& I) {
  const nb::gil_scoped_release released;
  scan.scan({as_matrix(X), as_span(labels), as_matrix(lists), as_span(allowed)}, margin, as_matrix(D), as_matrix(I));
}

void scan_codes(const ListScan& scan, const PqCodes& pq, const Vectors& X, const Labels& labels,
                const Array2<const std::int64_t>& lists, const Flags& allowed, std::size_t kept, const Scores& D,
                const Ids& I) {
  const PqView view = pq.view(scan);
  const nb::gil_scoped_release released;
  scan.scan_codes({as_matrix(X), as_span(labels), as_matrix(lists), as_span(allowed)}, view, kept, as_matrix(D),
                  as_matrix(I));
}

void centroids(const ListScan& scan, const Ints& entries, const Ints& entry_starts, const Labels& entry_labels,
               const Array2<float>& means, const Array2<float>& entry_means, int threads) {
  check_length("entry_starts", entry_starts.shape(0), scan.size() + 1);
  check_length("entries", entries.shape(0), entry_labels.shape(0));
  check_length("means", means.shape(0), scan.size());
  check_length("entry_means", entry_means.shape(0), entry_labels.shape(0));
  for (const Array2<float>& rows : {means, entry_means}) check_length("a mean", rows.shape(1), scan.rows().d());
  if (!ascends(as_span(entry_starts), entries.size()))
    throw nb::value_error("entry_starts must ascend from 0 to the number of entries");
  if (!all_below(as_span(entries), entries.size())) throw nb::value_error("entries must be numbers of entries");
  const LongCall call;
  scan.centroids(
      {as_span(entries), as_span(entry_starts), as_span(entry_labels), as_matrix(means), as_matrix(entry_means)},
      threads, call.watch);
}

}  // namespace

void bind_search(nb::module_& module) {
  module.def("has_bytes", [] { return kernels().has_bytes; });
  nb::class_<Blocks>(module, "Blocks")
      .def("__init__", make_blocks, nb::keep_alive<1, 2>(), nb::arg("rows"), nb::arg("element"),
           nb::arg("rounding_error"), as_is("references"), as_is("reference_starts"), as_is("wanted"), as_is("allowed"),
           as_is("rotation"), nb::arg("prefix"), nb::arg("threads"))
      .def("search", search_blocks, as_is("X"), as_is("labels"), as_is("starts"), as_is("lists"), as_is("order"),
           as_is("D"), as_is("I"), nb::kw_only(), nb::arg("deduplicate") = false, nb::arg("resume") = false,
           nb::arg("threads") = 1, nb::arg("progress") = nb::none())
      .def("__len__", &Blocks::size)
      .def_prop_ro("lists", &Blocks::lists)
      .def_prop_ro("memory", &Blocks::memory)
      .def_prop_ro("element",
                   [](const Blocks& blocks) { return blocks.element() == Element::kByte ? "byte" : "float"; })
      .def_prop_ro("rotated", &Blocks::rotated);
  module.def("halve_groups", halve_groups, as_is("X"), as_is("borders"), nb::arg("largest"), nb::arg("threads"));
  module.def("arrange_groups", arrange_groups, as_is("X"), as_is("order"), as_is("starts"), as_is("arranged"),
             as_is("means"), nb::arg("threads"));
  nb::class_<Searcher>(module, "Searcher")
      .def("__init__", make_searcher, nb::arg("lists"), nb::arg("centroids"), nb::arg("margin"),
           nb::arg("blocks").none(), as_is("changed"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 5>())
      .def("search_single", search_single, as_is("xq"), nb::arg("label"), nb::arg("nprobe"), nb::arg("complete"),
           as_is("D"), as_is("I"))
      .def("search", search, as_is("X"), as_is("labels"), nb::arg("nprobe"), nb::arg("complete"), as_is("allowed"),
           as_is("D"), as_is("I"), nb::arg("threads"), nb::arg("progress").none())
      .def("search_groups", search_groups, as_is("X"), as_is("rows"), as_is("labels"), as_is("order"), as_is("starts"),
           as_is("group_labels"), as_is("tasks"), nb::arg("nprobe"), as_is("D"), as_is("I"), nb::kw_only(),
           nb::arg("threads") = 1, nb::arg("progress") = nb::none());
  nb::class_<PqCodes>(module, "PqCodes")
      .def(
          "__init__",
          [](PqCodes* pq, const Codewords& codewords, const Vectors& centroids) {
            check_length("codewords[0, 0]", codewords.shape(2), kCodewords);
            new (pq) PqCodes{codewords, centroids};
          },
          as_is("codewords"), as_is("centroids"));
  nb::class_<ListScan>(module, "ListScan")
      .def("__init__", make_scan, nb::arg("rows"), as_is("references"), as_is("reference_starts"),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def("scan", scan_lists, as_is("X"), as_is("labels"), as_is("lists"), as_is("allowed"), nb::arg("margin"),
           as_is("D"), as_is("I"))
      .def("scan_codes", scan_codes, nb::arg("pq"), as_is("X"), as_is("labels"), as_is("lists"), as_is("allowed"),
           nb::arg("kept"), as_is("D"), as_is("I"))
      .def("centroids", centroids, as_is("entries"), as_is("entry_starts"), as_is("entry_labels"), as_is("means"),
           as_is("entry_means"), nb::arg("threads"));
}

}  // namespace cfe
