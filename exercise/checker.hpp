#pragma once
/// @file
/// The host side of an exercise: problems, references, what holds and what does not.

#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "common/device/buffer.hpp"
#include "exercise/kernel.cuh"

namespace exercise {

/// Elements before and behind an array that belong to nobody, so that a pointer which leaves the array is seen.
#if TUTORIAL_EMULATOR
template <class T>
inline constexpr std::size_t kMargin = 256 / sizeof(T);
#else
template <class T>
inline constexpr std::size_t kMargin = 0;
#endif

/// An array in device memory and the numbers that the host put there.
template <class T>
class Array {
 public:
  /// What the kernel gets.
  operator Global<const T>() const { return global<const T>(); }
  operator Global<T>() const { return global<T>(); }
  /// The host's number at i.
  double operator[](std::size_t i) const { return static_cast<double>(values_[i]); }
  std::size_t size() const { return values_.size(); }

 private:
  friend class Check;

  template <class U>
  Global<U> global() const {
#if TUTORIAL_EMULATOR
    return {data(), static_cast<std::int64_t>(values_.size()), name_->c_str()};
#else
    return {data()};
#endif
  }

  T* data() const {
    return device_->data() + kMargin<T>;
  }
  std::size_t bytes() const {
    return values_.size() * sizeof(T);
  }

  std::vector<T> values_;
  std::shared_ptr<tutorial::DeviceBuffer<T>> device_;  ///< with a margin on both sides
  std::shared_ptr<const std::string> name_;
  std::size_t columns_ = 0;
};

/// The bars of an exercise, all of them exact without a GPU. What is negative is not looked at.
struct Counts {
  int launches = -1;
  int barriers_per_block = -1;
  int atomics = -1;
};

/// What a run of all problems in all orders of threads has shown, and how it is told.
class Check {
 public:
  /// The kernel uses instructions that not all GPUs have; the emulator has them unless EMULATOR_DEVICE is set.
  /// @param missing bulk_copies_missing() or warpgroup_products_missing() of common/device/device.hpp: if it is not
  /// empty, nothing is started
  void needs(const std::string& missing);
  /// The sizes of the problems. Where a GPU times the kernel, the only one is `timed`: the small ones would measure
  /// the launch.
  template <class T>
  std::vector<T> sizes(std::initializer_list<T> checked, T timed) const {
    return is_timing_ ? std::vector<T>{timed} : std::vector<T>(checked);
  }
  /// Starts a problem such as "L = 33". All arrays of the one before go.
  void problem(const std::string& name);
  /// An input with normal numbers, or with those that are given.
  Array<float> input(const char* name, std::size_t size);
  Array<float> input(const char* name, const std::vector<double>& values);
  /// An output: NaN until the kernel writes it. @param columns of a row; 0 for an array without rows
  Array<float> output(const char* name, std::size_t size, std::size_t columns = 0);
  /// An array that the kernel reads and changes, with these numbers to begin with.
  Array<float> in_out(const char* name, const std::vector<double>& values, std::size_t columns = 0);
  /// Whole numbers, such as counters and flags that the kernel changes.
  Array<unsigned> words(const char* name, const std::vector<unsigned>& values);
  /// The same, with this number everywhere.
  Array<unsigned> words(const char* name, std::size_t size, unsigned value = 0);
  /// Uniform numbers from `low` to `high`, the same in every run.
  std::vector<double> uniform(std::size_t size, double low, double high);

  /// Starts the reader's kernel.
  void run(const std::function<void()>& start);

  /// The array is to hold `expected`, each number up to `tolerance` of the largest of them.
  void expect(const Array<float>& array, const std::vector<double>& expected, double tolerance = 1e-5);
  /// The kernel may read the array's size this many times.
  void reads_at_most(const Array<float>& array, double times);
  /// The kernel may write the array's size this many times.
  void writes_at_most(const Array<float>& array, double times);
  /// The kernel has to store so many elements of the array, each time that it does counted.
  void stores_at_least(const Array<unsigned>& array, std::size_t stores);
  /// The kernel may copy the array's size this many times by asynchronous copies, and no other array so.
  void copied_at_most(const Array<float>& array, double times);
  /// What the run may take at most.
  void counts_at_most(const Counts& most);
  // What an exercise is about, where a kernel may be right without it. `what` says in a clause what it is for.
  /// Threads have to arrive so often at barriers in shared memory.
  void arrivals_at_least(std::size_t arrivals, const char* what);
  /// Warps have to issue so many products wgmma().
  void products_at_least(std::size_t products, const char* what);
  /// Warps have to call so many shuffles, votes, mma() and their like.
  void collectives_at_least(std::size_t collectives, const char* what);
  /// So many times threads have to meet, at barriers of a block or a warp or in calls that a warp makes together.
  void meetings_at_least(std::size_t meetings, const char* what);
  /// The kernel has to copy the array's size this many times by asynchronous copies, and no other array so.
  void copied_at_least(const Array<float>& array, double times, const char* what);
  /// So many warps have to call decrease_registers() or increase_registers(), once each.
  void changes_registers(int warps);

 private:
  friend int check_exercise(const std::string& number, const std::string& file, const std::type_info& type,
                            void (*run)(), bool is_timed);

  /// Who has numbers in an array: the host before the kernel, or the kernel alone.
  enum class Use { input, output, in_out };

  template <class T>
  Array<T> make(const char* name, std::vector<T> values, Use use, std::size_t columns = 0);
  /// "O[37], row 1, column 5"
  template <class T>
  static std::string element(const Array<T>& array, std::size_t i);
  /// Whether a kernel has read or written a margin of an array.
  void look_at_margins();
  /// What makes a NaN, as a question.
  const char* why_nan() const;
  void fail_use(std::uint64_t found, std::uint64_t least, const char* of, const char* what);
  /// Times the kernel on a GPU.
  void time(const std::function<void()>& start);
  /// "4096 tiles: 812.3 us; ...": what time() has found, and the share of the limit.
  std::string timing() const;
  /// Runs all problems of an exercise's check.
  void run_check(const std::function<void(Check&, void (*)())>& check, void (*run)());
  void fail_result(const std::string& text);
  void fail_count(const std::string& text);

  std::string schedule_;
  std::string problem_;
  int problems_ = 0;
  std::string missing_;  ///< what the GPU lacks for this kernel
  bool is_timing_ = false;
  bool is_broken_ = false;  ///< the kernel could not run to its end
  std::string launch_failure_;
  std::string wrong_result_;  ///< the first
  std::string wrong_counts_;  ///< the last
  std::vector<std::string> right_orders_;
  std::vector<std::string> wrong_orders_;
  std::vector<std::pair<const void*, std::string>> margins_;  ///< and what is said of one that is touched
  std::map<std::string, bool> was_seen_;  ///< "reads of x": whether the watch has seen the kernel do that
  std::mt19937 random_;
  std::vector<std::shared_ptr<void>> alive_;     ///< memory of the arrays
  std::vector<std::function<void()>> restores_;  ///< gives what the kernel changes its first numbers again
  std::size_t least_bytes_ = 0;                  ///< each input read once and each output written once
  double milliseconds_ = 0;                      ///< of a call, with a cold cache
  std::uint64_t launches_ = 0;
  std::uint64_t blocks_ = 0;
  std::uint64_t barriers_ = 0;
  std::uint64_t atomics_ = 0;
  std::uint64_t register_changes_ = 0;
  std::uint64_t warp_barriers_ = 0;
  std::uint64_t collectives_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t products_ = 0;
  std::uint64_t copied_ = 0;  ///< bytes
};

/// Registers the check of an exercise. `run` is what the reader's file calls run(): it starts the kernel.
class Exercise {
 public:
  template <class Run>
  Exercise(const char* number, void (*check)(Check&, Run*)) {
    add(number, typeid(Run*), [check](Check& c, void (*run)()) { check(c, reinterpret_cast<Run*>(run)); });
  }

 private:
  static void add(const char* number, const std::type_info& type, std::function<void(Check&, void (*)())> check);
};

/// Checks one exercise in several orders of threads and prints what holds and what does not. On a GPU it also times a
/// kernel that is right, and prints the share of the limit, unless `is_timed` is false.
/// @return 0 if all holds, 1 if not, 2 if run() is not what the exercise asks for, 3 if this GPU cannot run it
int check_exercise(const std::string& number, const std::string& file, const std::type_info& type, void (*run)(),
                   bool is_timed = true);

/// The same, for a function of the reader's file.
template <class Run>
int check_exercise(const std::string& number, const std::string& file, Run* run) {
  return check_exercise(number, file, typeid(Run*), reinterpret_cast<void (*)()>(run));
}

}  // namespace exercise
