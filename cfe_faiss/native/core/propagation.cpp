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

// Tells `watch` about a part of its work: `size` of it, after `before`, done when all tasks are.
Watch part_of(const Watch& watch, double before, double size, std::size_t tasks) {
  if (!watch) return {};
  return [&watch, before, size, tasks](std::size_t done) {
    watch(static_cast<std::size_t>(before + size * static_cast<double>(done) / static_cast<double>(tasks)));
  };
}

void copy_rows(const Matrix<const float>& from, std::span<float> to, int threads, const Watch& watch) {
  const auto copy = [&](std::size_t row) { std::ranges::copy(from[row], to.begin() + row * from.columns); };
  for_each_row(from.rows, from.columns, threads, copy, watch);
}

// Checks the rows that a step of n nodes writes.
void check_written(const StepRows& rows, std::size_t n, std::size_t d) {
  require(rows.new_lengths.size() == n, "new_lengths must have a number for each node");
  require(rows.aggregate.rows == n && rows.aggregate.columns == d, "aggregate must have the shape of unit");
  require(rows.new_unit.rows == n && rows.new_unit.columns == d, "new_unit must have the shape of unit");
}

}  // namespace

BlockStep::BlockStep(const Nodes& nodes, std::size_t all_nodes, std::size_t d, std::vector<float> own, int threads)
    : nodes_(nodes.part(0, nodes.size())),
      all_nodes_(all_nodes),
      d_(d),
      threads_(threads),
      own_(std::move(own)),
      sums_(nodes.size(), d) {
  require(d > 0, "rows must have at least one column");
  require(own_.size() == d * nodes.size(), "own must have a row for each node");
  for (std::size_t v = 0; v < nodes.size(); ++v) read_.push_back(nodes.first(v));
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

void Propagation::check(const Matrix<const float>& unit, const StepRows& rows) const {
  const std::size_t n = graph_->num_nodes(), all = graph_->all_nodes(), d = unit.columns;
  require(d > 0, "unit must have at least one column");
  require(unit.rows == all && rows.lengths.size() == all, "unit and lengths must have a row for each node");
  check_written(rows, n, d);
  require(memory_ == 0 || (n == all && graph_->nodes().numbers.empty()), "some nodes take a step in memory only");
  require(n == 0 || rows.new_unit.data != unit.data, "new_unit must not be unit");
}

void Propagation::step(const Matrix<const float>& unit, const StepRows& rows, const Watch& watch) const {
  check(unit, rows);
  if (memory_ == 0)
    step_in_memory(unit, rows, watch);
  else if (unit.rows > 0)
    step_by_blocks(unit, rows, watch);
}

void Propagation::step_in_memory(const Matrix<const float>& unit, const StepRows& rows, const Watch& watch) const {
  const Nodes& nodes = graph_->nodes();
  const std::vector<Range> ranges = balanced_ranges(nodes.indptr);
  const auto take = [&](std::size_t task) {
    SumsOfNodes sums(1, unit.columns);
    kernels().step_nodes({unit, 0, rows.lengths}, nodes, ranges[task], alpha_, rows, sums[0]);
  };
  const auto edges = static_cast<double>(graph_->num_edges());
  parallel_for(ranges.size(), threads_, take, part_of(watch, 0.0, edges, ranges.size()));
}

void Propagation::step_by_blocks(const Matrix<const float>& unit, const StepRows& rows, const Watch& watch) const {
  const Nodes& nodes = graph_->nodes();
  const std::size_t n = unit.rows, d = unit.columns;
  // Of a node its row, two sums (one in float64) and its neighbours: three quarters of the memory are for these.
  const std::size_t of_neighbors = 4 * (graph_->num_edges() + nodes.weights.size()) / n;
  const std::size_t of_node = 16 * d + of_neighbors + 32;
  const std::size_t height = std::clamp<std::size_t>(memory_ / 4 * 3 / of_node, 1, n);
  const std::size_t width = std::clamp<std::size_t>(memory_ / 4 / (4 * d), 1, n);
  std::vector<float> others(width * d);
  for (std::size_t first = 0; first < n; first += height) {
    const std::size_t stop = std::min(first + height, n);
    const auto before = static_cast<double>(nodes.first(first));
    const double share = (static_cast<double>(nodes.indptr[stop]) - before) / static_cast<double>(n);
    const Watch quiet = part_of(watch, before, 0.0, 1);
    std::vector<float> own((stop - first) * d);
    copy_rows(unit.part(first, stop), own, threads_, quiet);
    BlockStep block(nodes.part(first, stop), n, d, std::move(own), threads_);
    for (std::size_t low = 0; low < n; low += width) {
      const std::size_t high = std::min(low + width, n);
      copy_rows(unit.part(low, high), others, threads_, quiet);
      block.gather({{others.data(), high - low, d}, low, rows.lengths},
                   part_of(watch, before + share * static_cast<double>(low), 0.0, 1));
    }
    block.finish(alpha_, rows.part(first, stop), quiet);
  }
}

void normalise_rows(const Matrix<float>& rows, std::span<double> norms, int threads, const Watch& watch) {
  require(norms.size() == rows.rows, "norms must have a number for each row");
  if (rows.columns == 0) return;
  const auto normalise = kernels().normalise;
  const auto normalise_row = [&](std::size_t row) { norms[row] = normalise(rows[row]); };
  for_each_row(rows.rows, rows.columns, threads, normalise_row, watch);
}

}  // namespace cfe
