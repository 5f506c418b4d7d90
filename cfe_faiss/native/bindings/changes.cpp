#include "core/changes.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <functional>
#include <numeric>

#include "bindings/bindings.h"
#include "core/common.h"
#include "core/fork.h"

namespace cfe {

namespace {

// A function of FAISS and its arguments. It is C code, so that no line of Python runs and no signal is handled.
using Step = std::pair<nb::object, nb::tuple>;
using Steps = std::vector<Step>;

nb::object call(const Step& step) {
  PyObject* result = PyObject_Call(step.first.ptr(), step.second.ptr(), nullptr);
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

void call_all(const Steps& steps) {
  for (const Step& step : steps) call(step);
}

// Calls all, even if some fail, and returns the first error.
std::exception_ptr call_each(const Steps& steps) {
  std::exception_ptr error;
  for (const Step& step : steps) {
    try {
      call(step);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  return error;
}

std::byte* address_of(const nb::object& pointer) {
  if (pointer.is_none()) return nullptr;  // SWIG's null pointer
  const nb::object number = nb::steal(PyNumber_Long(pointer.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  return static_cast<std::byte*>(PyLong_AsVoidPtr(number.ptr()));
}

// FAISS's lists, reached by the functions of its Python module. Each function comes with its first arguments; the
// number of the list follows. `numbered` is false if there is only one list, whose number the functions do not take.
class FaissLists : public InvertedLists {
 public:
  FaissLists(Step size, Step codes, Step ids, std::optional<Step> resize, bool numbered)
      : size_(std::move(size)),
        codes_(std::move(codes)),
        ids_(std::move(ids)),
        resize_(std::move(resize)),
        numbered_(numbered) {}

  std::size_t size(std::size_t list) const override { return nb::cast<std::size_t>(ask(size_, list)); }
  std::byte* codes(std::size_t list) const override { return address_of(ask(codes_, list)); }
  std::byte* ids(std::size_t list) const override { return address_of(ask(ids_, list)); }

  // Adds a step that resizes a list, if lists are resized one by one.
  void add_resize(Steps& steps, std::size_t list, std::size_t size) const {
    if (resize_) steps.emplace_back(resize_->first, nb::tuple(resize_->second + nb::make_tuple(list, size)));
  }

 private:
  nb::object ask(const Step& step, std::size_t list) const {
    return call(numbered_ ? Step(step.first, nb::tuple(step.second + nb::make_tuple(list))) : step);
  }

  Step size_, codes_, ids_;
  std::optional<Step> resize_;
  bool numbered_;
};

// A Python array as shared memory, kept alive.
template <class Array>
Shared shared(const Array& array) {
  const auto* kept = new Array(array);
  return Shared(reinterpret_cast<const std::byte*>(array.data()), [kept](const std::byte*) {
    const nb::gil_scoped_acquire held;
    delete kept;
  });
}

void make_table(Table* place, Ints sizes, std::size_t further, std::size_t d, std::size_t code_size,
                const std::optional<Array1<const std::int32_t>>& labels,
                const std::optional<Array2<const float>>& vectors,
                const std::optional<std::pair<Array1<const std::int32_t>, Array1<const std::int64_t>>>& references) {
  const auto n = static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  check_length("labels", labels ? labels->size() : 0, n);
  check_length("vectors", vectors ? vectors->size() : 0, d * n);
  check_length("references", references ? references->first.size() : 0, further * n);
  if (references) check_length("reference starts", references->second.size(), further * sizes.size() + 1);
  new (place) Table(sizes, further, d, code_size);
  if (labels) place->set_labels(shared(*labels));
  if (vectors) place->set_vectors(shared(*vectors));
  if (references) {
    auto kept = std::make_shared<std::pair<Shared, Shared>>(shared(references->first), shared(references->second));
    place->set_references({as_span(references->first), as_span(references->second), kept});
  }
}

// Releases the GIL while the table's mutex is held.
struct WithoutGil {
  nb::gil_scoped_release released;  // first, as threads that hold the mutex, or fork, may wait for the GIL
  Unforked section;
};

// The same for a section that keeps the GIL. Only the wait for it releases the GIL.
struct WithGil {
  WithGil() {
    const nb::gil_scoped_release released;
    section.emplace();
  }
  std::optional<Unforked> section;
};

void locate(Table& table, const FaissLists& lists) {
  if (table.is_located()) return;
  std::vector<Place> places = table.places_in(lists);
  const WithoutGil section;
  table.locate(std::move(places));
}

Rows rows(Table& table, const FaissLists& lists, std::size_t d, int codec, Floats levels, int metric, bool sorted) {
  locate(table, lists);
  const WithoutGil section;
  return table.rows({d, enum_of<Codec>("codec", codec), levels, enum_of<Metric>("metric", metric)}, sorted);
}

nb::object references(Table& table) {
  const auto kept = within<WithoutGil>([&] { return table.references(); });
  if (!kept) return nb::none();
  return nb::make_tuple(as_array(kept->rows.data(), kept->rows.size(), kept->owner),
                        as_array(kept->starts.data(), kept->starts.size(), kept->owner));
}

nb::object vectors(Table& table) {
  const Shared taken = within<WithoutGil>([&] { return table.vectors(); });
  return nb::cast(
      as_array(reinterpret_cast<const float*>(taken.get()), table.size() * table.vector_size() / sizeof(float), taken));
}

// --- changes ---

template <class Number>
const std::byte* checked(const char* name, const Matrix<Number>& array, std::size_t rows, std::size_t row_size) {
  check_length(name, array.size() * sizeof(Number), rows * row_size);
  return reinterpret_cast<const std::byte*>(array.data);
}

// Applies a change as a whole. Everything that can fail comes first and leaves the index unchanged. An array of new
// rows that the change does not need is None.
void commit(Table& table, const Change& change, const FaissLists& lists, Matrix<const std::uint8_t> codes, Ints ids,
            Matrix<const std::int32_t> homes, Vectors vectors, const Steps& before, const Steps& undo,
            const Steps& after, int threads) {
  const NewRows rows{checked("codes", codes, change.added, table.code_size()),
                     checked("ids", Lists{ids.data(), 1, ids.size()}, change.added, sizeof(std::int64_t)),
                     checked("homes", homes, change.added, table.further() * sizeof(std::int32_t)),
                     checked("vectors", vectors, change.added, table.vector_size())};
  Steps grow, shrink, shrink_again;
  for (const ListChange& one : change.lists) {
    if (one.after > one.before) {
      lists.add_resize(grow, one.list, one.after);
      lists.add_resize(shrink_again, one.list, one.before);
    } else if (one.after < one.before) {
      lists.add_resize(shrink, one.list, one.after);
    }
  }
  const WithGil section;
  {
    const nb::gil_scoped_release released;
    table.make_room(change, threads);
  }
  table.forget_places();
  try {
    call_all(before);
    call_all(grow);
    table.locate(lists, change);
  } catch (...) {
    call_each(shrink_again);
    call_each(undo);
    throw;
  }
  {
    const nb::gil_scoped_release released;
    table.apply(change, rows);
  }
  std::exception_ptr error = call_each(shrink);
  const std::exception_ptr later = call_each(after);
  if (error || later) std::rethrow_exception(error ? error : later);
}

// Calls functions of FAISS one after the other; if one fails, calls `undo`.
void call_steps(const Steps& steps, const Steps& undo) {
  const WithGil section;
  try {
    call_all(steps);
  } catch (...) {
    call_each(undo);
    throw;
  }
}

nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> lists_of(const Change& change) {
  std::vector<std::int64_t> lists;
  lists.reserve(change.lists.size());
  for (const ListChange& one : change.lists) lists.push_back(static_cast<std::int64_t>(one.list));
  return as_array(std::move(lists));
}

std::int64_t greatest_id(Table& table, const FaissLists& lists) {
  locate(table, lists);
  const nb::gil_scoped_release released;
  return table.greatest_id();
}

std::ptrdiff_t first_stored(Table& table, const FaissLists& lists, Ints ids) {
  locate(table, lists);
  const WithoutGil section;
  return table.first_stored(ids);
}

auto rows_of(Table& table, const FaissLists& lists, Ints ids) {
  locate(table, lists);
  return as_array(within<WithoutGil>([&] { return table.rows_of(ids); }));
}

bool is_as_left(const Table& table, const FaissLists& lists, const Change* change) {
  return !table.is_located() || table.is_as_left(lists, change);
}

Change relabelling(const Table& table, Ints rows, Labels labels, bool sorted) {
  check_length("labels", labels.size(), rows.size());
  const bool ascend = std::ranges::adjacent_find(rows, std::greater_equal<>()) == rows.end();
  require(ascend && all_below(rows, table.size()), "rows must be distinct rows in ascending order");
  return table.relabelling(rows, labels, sorted);
}

Change replacement(const Table& table, Ints rows, Labels lists, Labels labels, bool sorted) {
  check_length("labels", labels.size(), lists.size());
  require(all_below(lists, table.nlist()), "lists must be in the table");
  require(sorted || table.nlist() == 1, "only the rows of a single list may be in any order");
  return table.replacement(rows, lists, labels, sorted);
}

}  // namespace

void bind_changes(nb::module_& module) {
  nb::class_<FaissLists>(module, "FaissLists")
      .def(nb::init<Step, Step, Step, std::optional<Step>, bool>(), "size"_a, "codes"_a, "ids"_a, "resize"_a.none(),
           "numbered"_a);
  nb::class_<Change>(module, "Change").def("lists", lists_of);
  nb::class_<Table>(module, "Table")
      .def("__init__", make_table, "sizes"_a, "further"_a, "d"_a, "code_size"_a, as_is("labels").none(),
           as_is("vectors").none(), "references"_a.none())
      .def("__len__", &Table::size)
      .def("rows", rows, "lists"_a, "d"_a, "codec"_a, "levels"_a, "metric"_a, "sorted"_a = true, nb::rv_policy::move)
      .def("references", references)
      .def("vectors", vectors)
      .def("is_as_left", is_as_left, "lists"_a, "change"_a = nb::none())
      .def("greatest_id", greatest_id, "lists"_a)
      .def("first_stored", first_stored, "lists"_a, "ids"_a)
      .def("rows_of", rows_of, "lists"_a, "ids"_a)
      .def("replacement", replacement, "rows"_a, "lists"_a, "labels"_a, "sorted"_a = true, without_gil)
      .def("relabelling", relabelling, "rows"_a, "labels"_a, "sorted"_a = true, without_gil);
  module.def("commit", commit, "table"_a, "change"_a, "lists"_a, "codes"_a.none(), "ids"_a.none(), "homes"_a.none(),
             "vectors"_a.none(), "before"_a, "undo"_a, "after"_a, "threads"_a);
  module.def("call_steps", call_steps, "steps"_a, "undo"_a);
}

}  // namespace cfe
