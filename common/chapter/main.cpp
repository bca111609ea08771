#include "common/chapter/chapter.hpp"

int main(int argc, char** argv) {
  return tutorial::chapter().run(argc, argv);
}
