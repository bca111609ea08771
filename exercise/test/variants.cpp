#include "exercise/test/variants.hpp"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace exercise {
namespace {

struct Entry {
  const char* number;
  const std::type_info* type;
  void (*run)();
};

std::map<std::string, Entry>& variants() {
  static std::map<std::string, Entry> all;
  return all;
}

}  // namespace

void Variant::add(const char* number, const char* name, const std::type_info& type, void (*run)()) {
  variants().emplace(std::string(number) + " " + name, Entry{number, &type, run});
}

}  // namespace exercise

namespace {

/// Checks a variant. @return check_exercise()'s status; 2 if there is none of this name
int check_variant(const std::string& number, const std::string& name, bool is_timed) {
  const auto found = exercise::variants().find(number + " " + name);
  if (found == exercise::variants().end()) {
    std::fprintf(stderr, "there is no variant '%s' of exercise %s\n", name.c_str(), number.c_str());
    return 2;
  }
  const auto& [exercise_number, type, run] = found->second;
  return exercise::check_exercise(exercise_number, found->first, *type, run, is_timed);
}

}  // namespace

/// Usage: exercise_variants NUMBER VARIANT
///        exercise_variants --several NUMBER VARIANT [NUMBER VARIANT]...
/// The second form times nothing. It prints a line "== NUMBER VARIANT" before each variant and "== status S" behind it, and
/// ends with status 4 behind one after which a GPU takes no more calls.
int main(int argc, char** argv) {
  const bool are_several = argc > 1 && std::strcmp(argv[1], "--several") == 0;
  const int first = are_several ? 2 : 1;
  if (argc <= first || (argc - first) % 2 != 0 || (!are_several && argc != 3)) {
    std::fprintf(stderr, "usage: exercise_variants [--several] NUMBER VARIANT...\n");
    return 2;
  }
  if (!are_several) return check_variant(argv[1], argv[2], true);
  for (int i = first; i < argc; i += 2) {
    std::printf("== %s %s\n", argv[i], argv[i + 1]);
    std::fflush(stdout);
    const int status = check_variant(argv[i], argv[i + 1], false);
    const bool goes_on = cudaDeviceSynchronize() == cudaSuccess;
    std::printf("== status %d\n", status);
    std::fflush(stdout);
    if (!goes_on) return 4;
  }
  return 0;
}
