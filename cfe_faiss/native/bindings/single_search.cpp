// One call that checks, searches and answers a single query: converting arrays would take longer than searching a small
// index. Only this file uses NumPy's C API.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <nanobind/stl/shared_ptr.h>
#include <numpy/arrayobject.h>

#include "bindings/bindings.h"
#include "bindings/filter.h"
#include "core/read_write_lock.h"
#include "core/searcher.h"

namespace cfe {

namespace {

// A query that needs no conversion: C-contiguous float32 with one label, k and nprobe.
struct Query {
  std::span<const float> x;
  std::int64_t label;
  std::size_t k, nprobe;
};

PyArrayObject* as_array(nb::handle object) {
  return PyArray_CheckExact(object.ptr()) ? reinterpret_cast<PyArrayObject*>(object.ptr()) : nullptr;
}

// A positive plain Python int, else 0.
std::size_t as_count(nb::handle object) {
  if (!PyLong_CheckExact(object.ptr())) return 0;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  return overflow == 0 && number > 0 ? static_cast<std::size_t>(number) : 0;
}

std::optional<std::int64_t> only_label(PyArrayObject* labels) {
  if (labels == nullptr || PyArray_NDIM(labels) != 1 || PyArray_DIM(labels, 0) != 1 || !PyArray_ISCARRAY_RO(labels))
    return {};
  const int type = PyArray_TYPE(labels);
  if (PyTypeNum_ISSIGNED(type) && PyArray_ITEMSIZE(labels) == 8)
    return *static_cast<const std::int64_t*>(PyArray_DATA(labels));
  if (PyTypeNum_ISSIGNED(type) && PyArray_ITEMSIZE(labels) == 4)
    return *static_cast<const std::int32_t*>(PyArray_DATA(labels));
  return {};
}

std::optional<Query> as_query(nb::handle xq, nb::handle labels_q, nb::handle k, nb::handle nprobe, std::size_t d) {
  PyArrayObject* x = as_array(xq);
  if (x == nullptr || PyArray_TYPE(x) != NPY_FLOAT32 || !PyArray_ISCARRAY_RO(x) || PyArray_NDIM(x) != 2 ||
      PyArray_DIM(x, 0) != 1 || static_cast<std::size_t>(PyArray_DIM(x, 1)) != d)
    return {};
  const std::optional<std::int64_t> label = only_label(as_array(labels_q));
  const std::size_t results = as_count(k), lists = as_count(nprobe);
  if (!label || results == 0 || lists == 0) return {};
  return Query{{static_cast<const float*>(PyArray_DATA(x)), d}, *label, results, lists};
}

// A new array (1, k).
nb::object row_of(std::size_t k, int type) {
  npy_intp shape[] = {1, static_cast<npy_intp>(k)};
  PyObject* array = PyArray_SimpleNew(2, shape, type);
  if (array == nullptr) throw nb::python_error();
  return nb::steal(array);
}

template <class Number>
Number* data_of(const nb::object& array) {
  return static_cast<Number*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

// Searches an index under its lock, until the index changes.
class SingleSearch {
 public:
  // The caller holds the lock.
  SingleSearch(std::shared_ptr<ReadWriteLock> lock, const Searcher& searcher)
      : lock_(std::move(lock)), searcher_(searcher), writers_(lock_->writers_so_far()) {}

  // Returns D and I, (1, k), or None if the query needs a conversion or the index has changed.
  nb::object search(nb::handle xq, nb::handle labels_q, nb::handle k, nb::handle nprobe, bool complete,
                    std::size_t ntotal, const Filter* filter) const {
    const std::optional<Query> query = as_query(xq, labels_q, k, nprobe, searcher_.d());
    if (!query || query->k > searcher_.size() || ntotal != searcher_.size()) return nb::none();
    const nb::object D = row_of(query->k, NPY_FLOAT32), I = row_of(query->k, NPY_INT64);
    const SearchOptions options{std::min(query->nprobe, searcher_.lists()), complete,
                                view_of(filter, 1, searcher_.size())};
    const Reading reading(*lock_);
    if (lock_->writers_so_far() != writers_ ||
        !search_without_gil(*query, options, {data_of<float>(D), data_of<std::int64_t>(I), query->k}))
      return nb::none();
    return nb::make_tuple(D, I);
  }

 private:
  struct Reading : Fixed {
    explicit Reading(ReadWriteLock& entered) : lock(entered) { enter_reading(lock); }
    ~Reading() { lock.leave_reading(); }
    ReadWriteLock& lock;
  };

  bool search_without_gil(const Query& query, const SearchOptions& options, TopK best) const {
    const nb::gil_scoped_release released;
    return searcher_.search_single(query.x, query.label, options, best);
  }

  std::shared_ptr<ReadWriteLock> lock_;
  const Searcher& searcher_;
  std::uint64_t writers_;  // writers before the searcher was made
};

bool is_single(nb::handle xq, nb::handle labels_q, nb::handle k, std::size_t d) {
  return as_query(xq, labels_q, k, k, d).has_value();
}

}  // namespace

void bind_single_search(nb::module_& module) {
  if (_import_array() < 0) throw nb::python_error();
  module.def("is_single", is_single, "xq"_a.none(), "labels_q"_a.none(), "k"_a.none(), "d"_a);
  nb::class_<SingleSearch>(module, "SingleSearch")
      .def(nb::init<std::shared_ptr<ReadWriteLock>, const Searcher&>(), "lock"_a, "searcher"_a, nb::keep_alive<1, 3>())
      .def("search", &SingleSearch::search, "xq"_a.none(), "labels_q"_a.none(), "k"_a.none(), "nprobe"_a.none(),
           "complete"_a, "ntotal"_a, "rules"_a.none() = nb::none());
}

}  // namespace cfe
