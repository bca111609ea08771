#include "exercise/checker.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <sstream>

#include "common/device/device.hpp"
#include "common/device/error.hpp"
#include "exercise/findings.hpp"

#if TUTORIAL_CUDA
#include "common/roofline.hpp"
#include "common/timing.hpp"
#endif

#if TUTORIAL_EMULATOR
#include <emulator/counters.hpp>
#include <emulator/hopper_counters.hpp>
#include <emulator/launch.hpp>
#include <emulator/races.hpp>
#include <emulator/schedule.hpp>
#endif

namespace exercise {
namespace {

struct Entry {
  const std::type_info* type;
  std::function<void(Check&, void (*)())> check;
};

std::map<std::string, Entry>& entries() {
  static std::map<std::string, Entry> all;
  return all;
}

/// "1.5": short, as a reader wants it.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// A number of bytes.
[[maybe_unused]] std::string whole(double value) {
  return std::to_string(static_cast<long long>(value));
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// A line of a report without the names of functions: "x.cu:3 in void f(int) too early" becomes "x.cu:3 too early".
[[maybe_unused]] std::string without_functions(std::string line) {
  for (std::size_t from = 0; (from = line.find(".cu:", from)) != std::string::npos; ++from) {
    const std::size_t start = line.find_first_not_of("0123456789", from + 4);
    if (start == std::string::npos || line.compare(start, 4, " in ") != 0) continue;
    std::size_t end = line.find('(', start);
    int open = 0;
    for (; end < line.size(); ++end) {
      open += line[end] == '(' ? 1 : line[end] == ')' ? -1 : 0;
      if (open == 0) break;
    }
    line.erase(start, end < line.size() ? end + 1 - start : std::string::npos);
  }
  return line;
}

/// The first lines of a report.
[[maybe_unused]] std::string first_lines(const std::string& text, int count) {
  std::istringstream stream(text);
  std::string result;
  std::string line;
  for (int i = 0; i < count && std::getline(stream, line); ++i) {
    result += (i > 0 ? "\n                    " : "") + without_functions(line);
  }
  return result;
}

#if TUTORIAL_EMULATOR
// A sanitizer's build has the compiler tell that one of accesses, not us.
#if defined(__SANITIZE_ADDRESS__) || defined(EMULATOR_ASAN) || defined(EMULATOR_TSAN)
constexpr bool kSeesAccesses = false;
#else
constexpr bool kSeesAccesses = true;
#endif
const char* const kOrders[] = {"forward", "reverse", "warps", "random:1"};
#else
constexpr bool kSeesAccesses = false;  // on a GPU compute-sanitizer does
const char* const kOrders[] = {"of the GPU"};
#endif

/// A line of the verdict: a word, what it is about, and the mistake if there is one.
bool say(const char* what, const std::string& mistake, const std::string& fine) {
  std::printf("  %-6s %-10s %s\n", mistake.empty() ? "holds" : "FAILS", what,
              mistake.empty() ? fine.c_str() : mistake.c_str());
  return mistake.empty();
}

void say_not_watched(const std::string& what) {
  std::printf("  not watched: %s\n", what.c_str());
}

/// The same as say() for what only a watch of accesses shows.
[[maybe_unused]] bool say_of_accesses(const char* what, const std::string& mistake, const std::string& fine) {
  if (kSeesAccesses) return say(what, mistake, fine);
  say_not_watched(what);
  return true;
}

}  // namespace

void Exercise::add(const char* number, const std::type_info& type, std::function<void(Check&, void (*)())> check) {
  entries().emplace(number, Entry{&type, std::move(check)});
}

void Check::needs(const std::string& missing) {
  missing_ = missing;
  if (!missing.empty()) is_broken_ = true;  // nothing is started
}

void Check::problem(const std::string& name) {
#if TUTORIAL_EMULATOR
  emulator::forget_names();
#endif
  alive_.clear();
  restores_.clear();
  margins_.clear();
  least_bytes_ = 0;
  problem_ = name;
  ++problems_;
}

template <class T>
Array<T> Check::make(const char* name, std::vector<T> values, Use use, std::size_t columns) {
  Array<T> array;
  array.name_ = std::make_shared<const std::string>(name);
  array.columns_ = columns;
  array.values_ = std::move(values);
  std::vector<T> all(kMargin<T>, T(-1));
  all.insert(all.end(), array.values_.begin(), array.values_.end());
  all.resize(array.values_.size() + 2 * kMargin<T>, T(-1));
  array.device_ = std::make_shared<tutorial::DeviceBuffer<T>>(all);
  alive_.push_back(array.device_);
  alive_.push_back(std::make_shared<std::shared_ptr<const std::string>>(array.name_));
  least_bytes_ += (use == Use::in_out ? 2 : 1) * array.bytes();
  if (use == Use::in_out) restores_.push_back([device = array.device_, all] { device->upload(all); });
#if TUTORIAL_EMULATOR
  emulator::name_memory({.address = array.data(),
                         .bytes = array.bytes(),
                         .element_bytes = sizeof(T),
                         .name = name,
                         .is_written = use != Use::output});
  const auto add_margin = [&](const T* from, const std::string& where) {
    const std::string name = where + *array.name_;
    emulator::name_memory({.address = from,
                           .bytes = kMargin<T> * sizeof(T),
                           .element_bytes = sizeof(T),
                           .name = name,
                           .is_written = false});
    margins_.emplace_back(from, name);
  };
  add_margin(array.data() - kMargin<T>, "the memory before ");
  add_margin(array.data() + array.size(), "the memory behind ");
#endif
  return array;
}

template <class T>
std::string Check::element(const Array<T>& array, std::size_t i) {
  const std::string text = *array.name_ + "[" + std::to_string(i) + "]";
  if (array.columns_ == 0) return text;
  return text + ", row " + std::to_string(i / array.columns_) + ", column " + std::to_string(i % array.columns_) + ",";
}

Array<float> Check::input(const char* name, std::size_t size) {
  std::normal_distribution<double> normal;
  std::vector<double> values(size);
  for (double& value : values) value = normal(random_);
  return input(name, values);
}

Array<float> Check::input(const char* name, const std::vector<double>& values) {
  return make(name, std::vector<float>(values.begin(), values.end()), Use::input);
}

Array<float> Check::output(const char* name, std::size_t size, std::size_t columns) {
  return make(name, std::vector<float>(size, NAN), Use::output, columns);
}

Array<float> Check::in_out(const char* name, const std::vector<double>& values, std::size_t columns) {
  return make(name, std::vector<float>(values.begin(), values.end()), Use::in_out, columns);
}

Array<unsigned> Check::words(const char* name, const std::vector<unsigned>& values) {
  return make(name, values, Use::in_out);
}

Array<unsigned> Check::words(const char* name, std::size_t size, unsigned value) {
  return words(name, std::vector<unsigned>(size, value));
}

std::vector<double> Check::uniform(std::size_t size, double low, double high) {
  std::uniform_real_distribution<double> distribution(low, high);
  std::vector<double> values(size);
  for (double& value : values) value = static_cast<float>(distribution(random_));
  return values;
}

void Check::run(const std::function<void()>& start) {
  if (is_broken_) return;
#if TUTORIAL_EMULATOR
  emulator::reset_counters();
  emulator::reset_hopper_counters();
#endif
  try {
    if (is_timing_) return time(start);
    start();
    check(cudaDeviceSynchronize());
#if TUTORIAL_EMULATOR
    add_findings();
#endif
  } catch (const tutorial::CudaError& error) {
    is_broken_ = true;
    launch_failure_ = problem_ + ": " + short_path(error.what());
#if TUTORIAL_EMULATOR
    add_findings();
    if (const std::string report = emulator::last_report(); error.code() == cudaErrorLaunchFailure) {
      launch_failure_ = problem_ + ": " + short_path(first_lines(report, 5));
    }
#endif
    return;
  }
#if TUTORIAL_EMULATOR
  const emulator::Counters counters = emulator::counters();
  launches_ = counters.launches;
  blocks_ = counters.blocks;
  barriers_ = counters.barriers;
  atomics_ = counters.atomics;
  register_changes_ = counters.register_changes;
  warp_barriers_ = counters.warp_barriers;
  collectives_ = counters.warp_collectives;
  arrivals_ = emulator::hopper_counters().arrivals;
  products_ = emulator::hopper_counters().products;
  copied_ = counters.global_bytes_read;
  if (launches_ == 0) {  // in the emulator the host, too, can read and write device memory
    launch_failure_ = problem_ + ": run() starts no kernel";
    is_broken_ = true;
  }
  look_at_margins();
  if (!findings().stray.empty()) is_broken_ = true;
#endif
}

void Check::look_at_margins() {
#if TUTORIAL_EMULATOR
  for (const auto& [address, name] : margins_) {
    const emulator::NamedMemory& memory = *emulator::find_named_memory(address);
    if (memory.bytes_written > 0) note_stray_pointer("writes", name, memory.bytes_written);
    if (memory.bytes_read > 0) note_stray_pointer("reads", name, memory.bytes_read);
  }
#endif
}

void Check::time([[maybe_unused]] const std::function<void()>& start) {
#if TUTORIAL_CUDA
  const auto restore = [&] {
    for (const auto& one : restores_) one();
  };
  tutorial::GpuTimer timer;
  milliseconds_ = timer.time({.call = start, .prepare = restore}, {.budget_s = 0.2}).median;
#endif
}

std::string Check::timing() const {
#if TUTORIAL_CUDA
  const double rate = tutorial::measure_gpu_roofline({}).copy_bytes_s;
  const double least_us = 1e6 * static_cast<double>(least_bytes_) / rate;
  const double us = 1e3 * milliseconds_;
  return problem_ + ": " + number(us) + " us; its " + std::to_string(least_bytes_) + " bytes take " + number(least_us) +
         " us at the " + number(1e-12 * rate) + " TB/s of a copy: " + number(100 * least_us / us) + " % of the limit";
#else
  return "";
#endif
}

void Check::fail_result(const std::string& text) {
  if (wrong_result_.empty()) wrong_result_ = problem_ + ": " + text;
  if (wrong_orders_.empty() || wrong_orders_.back() != schedule_) wrong_orders_.push_back(schedule_);
}

void Check::fail_count(const std::string& text) {
  wrong_counts_ = problem_ + ": " + text;  // of the last problem, the largest one
}

const char* Check::why_nan() const {
#if TUTORIAL_EMULATOR
  // The emulator puts NaN into memory that nobody has written, where a copy is under way, and into sums of products.
  if (kSeesAccesses && findings().race.empty() && findings().unwritten.empty()) {
    if (products_ > 0) return ": is it a sum that was read before the wait for its product?";
    return ": is it 0 / 0, 0 * infinity, or the root or logarithm of a negative number?";
  }
#endif
  return ": does it come from memory that was read too early, or refilled too early?";
}

void Check::expect(const Array<float>& array, const std::vector<double>& expected, double tolerance) {
  if (is_broken_ || is_timing_) return;
  const std::vector<float> all = array.device_->download();
  const std::span<const float> found(all.data() + kMargin<float>, array.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = expected.size(); i-- > 0;) {
    if (std::abs(found[i] - expected[i]) <= tolerance * largest) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return;
  const std::string name = element(array, first);
  std::string text;
#if TUTORIAL_EMULATOR
  if constexpr (kSeesAccesses) {
    const emulator::NamedMemory& memory = *emulator::find_named_memory(array.data());
    if (memory.bytes_written == 0) return fail_result("your kernel writes nothing to " + *array.name_);
    if (!memory.is_written && !emulator::was_written(array.data() + first)) text = name + " is never written";
  }
#endif
  if (text.empty()) {
    const bool is_close = number(found[first]) == number(expected[first]);
    const auto show = [&](double value) { return is_close ? std::to_string(value) : number(value); };
    text = name + " is " + (std::isnan(found[first]) ? "NaN" : show(found[first])) + ", and should be " +
           show(expected[first]);
    if (std::isnan(found[first])) text += why_nan();
    // An exercise is compiled so that variables begin with -1.7e38.
    const char* unset = "does a variable begin with a value that nobody has set?";
    if (std::isinf(found[first]))
      text += std::string(": does a number overflow, or ") + unset;
    else if (std::abs(found[first]) > 1e37f)
      text += std::string(": ") + unset;
  }
  fail_result(text + " (" + std::to_string(wrong) + " of " + std::to_string(expected.size()) + " are wrong)");
}

void Check::reads_at_most([[maybe_unused]] const Array<float>& array, [[maybe_unused]] double times) {
#if TUTORIAL_EMULATOR
  if (is_broken_) return;
  const auto bytes = static_cast<double>(array.size() * sizeof(float));
  const auto read = static_cast<double>(emulator::find_named_memory(array.data())->bytes_read);
  was_seen_["reads of " + *array.name_] |= read > 0 || times == 0;
  if (read > times * bytes * (1 + 1e-9)) {
    fail_count(*array.name_ + " is read " + number(read / bytes) + " times, " + whole(read) + " bytes; " +
               whole(times * bytes) + " bytes are enough");
  }
#endif
}

void Check::writes_at_most([[maybe_unused]] const Array<float>& array, [[maybe_unused]] double times) {
#if TUTORIAL_EMULATOR
  if (is_broken_) return;
  const auto bytes = static_cast<double>(array.size() * sizeof(float));
  const auto written = static_cast<double>(emulator::find_named_memory(array.data())->bytes_written);
  was_seen_["writes of " + *array.name_] |= written > 0 || times == 0;
  if (written > times * bytes * (1 + 1e-9)) {
    fail_count(*array.name_ + " is written " + number(written / bytes) + " times, " + whole(written) + " bytes; " +
               whole(times * bytes) + " bytes are enough");
  }
#endif
}

void Check::stores_at_least([[maybe_unused]] const Array<unsigned>& array, [[maybe_unused]] std::size_t stores) {
#if TUTORIAL_EMULATOR
  if (is_broken_) return;
  const std::size_t found = emulator::find_named_memory(array.data())->bytes_written / sizeof(unsigned);
  was_seen_["writes of " + *array.name_] |= found > 0;
  if (kSeesAccesses && found < stores) {
    fail_count(*array.name_ + " gets " + std::to_string(found) + " stores; " + std::to_string(stores) +
               " are asked for");
  }
#endif
}

void Check::copied_at_most([[maybe_unused]] const Array<float>& array, [[maybe_unused]] double times) {
#if TUTORIAL_EMULATOR
  if (is_broken_) return;
  const auto bytes = static_cast<double>(array.size() * sizeof(float));
  const auto copied = static_cast<double>(copied_);
  if (copied > times * bytes * (1 + 1e-9)) {
    fail_count(*array.name_ + " is copied " + number(copied / bytes) + " times, " + whole(copied) + " bytes; " +
               whole(times * bytes) + " bytes are enough");
  }
#endif
}

void Check::counts_at_most([[maybe_unused]] const Counts& most) {
#if TUTORIAL_EMULATOR
  if (is_broken_) return;
  const auto check_one = [&](const char* what, std::uint64_t count, int limit) {
    if (limit < 0 || count <= static_cast<std::uint64_t>(limit)) return;
    fail_count(std::to_string(count) + " " + what + "; " + std::to_string(limit) + " are enough");
  };
  check_one("launches", launches_, most.launches);
  if (blocks_ > 0) check_one("barriers in a block", barriers_ / blocks_, most.barriers_per_block);
  check_one("atomic operations", atomics_, most.atomics);
#endif
}

void Check::changes_registers([[maybe_unused]] int warps) {
#if TUTORIAL_EMULATOR
  if (is_broken_ || register_changes_ == static_cast<std::uint64_t>(warps)) return;
  fail_count(std::to_string(register_changes_) + " changes of a warp's registers, and " + std::to_string(warps) +
             " are asked for");
#endif
}

void Check::fail_use(std::uint64_t found, std::uint64_t least, const char* of, const char* what) {
  if (is_broken_ || found >= least) return;
  fail_count(std::to_string(found) + " " + of + ", and " + std::to_string(least) + " are asked for: " + what +
             ". The result may be right without, but the exercise is about it");
}

void Check::arrivals_at_least([[maybe_unused]] std::size_t arrivals, [[maybe_unused]] const char* what) {
#if TUTORIAL_EMULATOR
  fail_use(arrivals_, arrivals, "arrivals at mbarriers", what);
#endif
}

void Check::products_at_least([[maybe_unused]] std::size_t products, [[maybe_unused]] const char* what) {
#if TUTORIAL_EMULATOR
  fail_use(products_, products, "products of a warp", what);
#endif
}

void Check::collectives_at_least([[maybe_unused]] std::size_t collectives, [[maybe_unused]] const char* what) {
#if TUTORIAL_EMULATOR
  fail_use(collectives_, collectives, "calls that a warp makes together", what);
#endif
}

void Check::meetings_at_least([[maybe_unused]] std::size_t meetings, [[maybe_unused]] const char* what) {
#if TUTORIAL_EMULATOR
  fail_use(barriers_ + warp_barriers_ + collectives_, meetings, "barriers and calls that a warp makes together", what);
#endif
}

void Check::copied_at_least([[maybe_unused]] const Array<float>& array, [[maybe_unused]] double times,
                            [[maybe_unused]] const char* what) {
#if TUTORIAL_EMULATOR
  const auto bytes = static_cast<std::uint64_t>(times * static_cast<double>(array.size() * sizeof(float)));
  fail_use(copied_, bytes, "bytes are copied asynchronously", what);
#endif
}

void Check::run_check(const std::function<void(Check&, void (*)())>& check, void (*run)()) {
  problems_ = 0;
  random_.seed(1);
  try {
    check(*this, run);
  } catch (const tutorial::CudaError& error) {  // of a GPU, which refuses all further calls after a kernel's fault
    if (launch_failure_.empty()) launch_failure_ = problem_ + ": " + short_path(error.what());
    is_broken_ = true;
  }
  alive_.clear();
  restores_.clear();
}

int check_exercise(const std::string& number, const std::string& file, const std::type_info& type, void (*run)(),
                   [[maybe_unused]] bool is_timed) {
  const auto entry = entries().find(number);
  if (entry == entries().end()) {
    std::fprintf(stderr, "there is no check of exercise %s\n", number.c_str());
    return 2;
  }
  if (*entry->second.type != type) {
    std::printf("%s: run() takes other parameters than the exercise gives it; take them from the skeleton\n",
                file.c_str());
    return 2;
  }
#if TUTORIAL_EMULATOR
  if (kSeesAccesses) emulator::collect_findings();
  forget_findings();
#endif
  Check check;
  for (const char* order : kOrders) {
#if TUTORIAL_EMULATOR
    emulator::set_schedule(order);
#endif
    check.schedule_ = order;
    check.run_check(entry->second.check, run);
    if (!check.missing_.empty()) {
      std::printf("%s: %s; the emulator runs it on any machine\n", file.c_str(), check.missing_.c_str());
      return 3;
    }
    if (check.is_broken_) break;
    if (check.wrong_orders_.empty() || check.wrong_orders_.back() != order) check.right_orders_.push_back(order);
  }
  std::printf("%s\n", file.c_str());
  const int orders = static_cast<int>(check.right_orders_.size() + check.wrong_orders_.size());
  const std::string where =
      std::to_string(check.problems_) + " problems in " + std::to_string(orders) + (orders == 1 ? " order" : " orders");
  bool holds = true;
#if TUTORIAL_EMULATOR
  const Findings& found = findings();
  holds = say("addresses", found.stray, "each index lies in its array") && holds;
#endif
  holds = say("launch", check.launch_failure_, "the kernel runs to its end") && holds;
#if TUTORIAL_EMULATOR
  // Of a kernel that did not come to its end, only what was found counts: the rest was not looked at.
  if (!check.is_broken_ || !found.race.empty()) {
    holds = say_of_accesses("order", found.race, "something orders each two accesses of two threads") && holds;
  }
  // A value that comes too late is a matter of order.
  if (found.race.empty() && (!check.is_broken_ || !found.unwritten.empty())) {
    holds = say_of_accesses("writes", found.unwritten, "what is read was written") && holds;
  }
#endif
  if (!check.is_broken_) {
    std::string result = check.wrong_result_;
    if (!result.empty() && !check.right_orders_.empty()) {
      result = "right in order " + joined(check.right_orders_) + ", wrong in order " + joined(check.wrong_orders_) +
               ": is a barrier missing? " + result;
    }
    holds = say("result", result, where) && holds;
#if TUTORIAL_EMULATOR
    if (result.empty()) {
      holds = say("counts", check.wrong_counts_, "no more than needed") && holds;
      // A kernel that is right has used the array, so its accesses went past the watch.
      for (const auto& [what, was_seen] : check.was_seen_) {
        if (!was_seen) say_not_watched(what);
      }
    }
#else
    say_not_watched("addresses, order, writes, counts");
#endif
  }
#if TUTORIAL_CUDA
  if (holds && is_timed) {
    check.is_timing_ = true;
    check.run_check(entry->second.check, run);
    holds = say("time", check.launch_failure_, check.is_broken_ ? "" : check.timing());
  }
#endif
  std::printf("%s\n", holds ? "solved" : "not solved yet");
  return holds ? 0 : 1;
}

}  // namespace exercise
