#include "core/propagation.h"

#include "core/common.h"
#include "core/kernels.h"

namespace cfe {

namespace {

constexpr std::size_t kValuesPerTask = 1 << 20;

// Calls `task` once for each row, in tasks of about equal size.
template <class Task>
void for_each_row(std::size_t rows, std::size_t columns, int threads, const Task& task, const Watch& watch) {
  const auto some = [&](std::size_t first, std::size_t stop) {
    for (std::size_t row = first; row < stop; ++row) task(row);
  };
  parallel_runs(rows, std::max<std::size_t>(kValuesPerTask / columns, 1), threads, some, watch);
}

// Checks the rows that a step of n nodes writes.
void check_written(const StepRows& rows, std::size_t n, std::size_t d) {
  require(rows.new_lengths.size() == n, "new_lengths must have a number for each node");
  require(rows.aggregate.rows == n && rows.aggregate.columns == d, "aggregate must have the shape of unit");
  require(rows.new_unit.rows == n && rows.new_unit.columns == d, "new_unit must have the shape of unit");
}

}  // namespace

BlockStep::BlockStep(const CsrGraph& graph, std::size_t first, const Matrix<const float>& own, int threads)
    : all_nodes_(graph.all_nodes()),
      d_(own.columns),
      threads_(threads),
      own_(own.data, own.data + own.size()),
      sums_(own.rows, own.columns) {
  require(d_ > 0, "rows must have at least one column");
  require(first <= graph.num_nodes() && own.rows <= graph.num_nodes() - first, "own must have rows of nodes only");
  nodes_ = graph.nodes().part(first, first + own.rows);
  for (std::size_t v = 0; v < own.rows; ++v) read_.push_back(nodes_.first(v));
}

void BlockStep::gather(const UnitRows& others, const Watch& watch) {
  require(others.low == next_, "blocks must come in the order of their rows");
  require(others.rows.columns == d_, "all rows must have the same length");
  require(others.lengths.size() == all_nodes_ && others.rows.rows <= all_nodes_ - next_,
          "there must be a length for each node, and no more rows than nodes");
  next_ += others.rows.rows;
  const StepOfNode step = kernels().step_of_node(d_);
  const auto add = [&](std::size_t v) {
    const auto begin = nodes_.indices.begin();
    const auto end = std::lower_bound(begin + read_[v], begin + nodes_.stop(v), static_cast<std::int64_t>(next_));
    const auto stop = static_cast<std::size_t>(end - begin);
    if (stop == read_[v]) return;
    step(others, {std::span(own_).subspan(v * d_, d_), some_neighbors(nodes_, v, read_[v], stop), sums_[v], false, {}});
    read_[v] = stop;
  };
  for_each_node(nodes_.indptr, threads_, add, watch);
}

void BlockStep::finish(double alpha, const StepRows& rows, const Watch& watch) {
  require(rows.lengths.size() == nodes_.size(), "lengths must have a number for each node");
  check_written(rows, nodes_.size(), d_);
  const StepOfNode step = kernels().step_of_node(d_);
  const auto finish_row = [&](std::size_t v) {
    const std::size_t stop = nodes_.stop(v);
    require(read_[v] == stop, "the rows of all nodes must have come before");
    const NewRow to = new_row(nodes_, alpha, rows, v);
    rows.new_lengths[v] =
        step({}, {std::span(own_).subspan(v * d_, d_), some_neighbors(nodes_, v, stop, stop), sums_[v], false, &to});
  };
  for_each_row(nodes_.size(), d_, threads_, finish_row, watch);
}

void step(const CsrGraph& graph, double alpha, const Matrix<const float>& unit, const StepRows& rows, int threads,
          const Watch& watch) {
  require(unit.columns > 0, "unit must have at least one column");
  require(unit.rows == graph.all_nodes() && rows.lengths.size() == unit.rows,
          "unit and lengths must have a row for each node");
  check_written(rows, graph.num_nodes(), unit.columns);
  require(graph.num_nodes() == 0 || rows.new_unit.data != unit.data, "new_unit must not be unit");
  const Nodes& nodes = graph.nodes();
  const std::vector<Range> ranges = balanced_ranges(nodes.indptr);
  const auto take = [&](std::size_t task) {
    SumsOfNodes sums(1, unit.columns);
    kernels().step_nodes({unit, 0, rows.lengths}, nodes, ranges[task], alpha, rows, sums[0]);
  };
  const auto report = [&](std::size_t done) { watch(done * graph.num_edges() / ranges.size()); };
  parallel_for(ranges.size(), threads, take, watch ? Watch(report) : Watch());
}

void normalise_rows(const Matrix<float>& rows, std::span<double> norms, int threads, const Watch& watch) {
  require(norms.size() == rows.rows, "norms must have a number for each row");
  if (rows.columns == 0) return;
  const auto normalise = kernels().normalise;
  const auto normalise_row = [&](std::size_t row) { norms[row] = normalise(rows[row]); };
  for_each_row(rows.rows, rows.columns, threads, normalise_row, watch);
}

}  // namespace cfe
