#pragma once
/// @file
/// The parts of a stage that is made of several, such as a layer. The stage says where each of them ends; the runner
/// listens in runs of their own and tells how long each part took. No dependencies, so that .cu files can include it.

#include <functional>

namespace tutorial {

/// A part of the stage has ended here: it began at the start of the call, or where the part before it ended. On a GPU
/// what counts is the work that the part has queued on current_stream(). Nothing happens where nobody listens.
/// @param name the same in every call
void end_part(const char* name);

/// For its life calls `ended(name)` wherever this host thread ends a part.
class PartListener {
 public:
  /// `ended` gets the part's name.
  explicit PartListener(std::function<void(const char* name)> ended);
  PartListener(const PartListener&) = delete;
  PartListener& operator=(const PartListener&) = delete;
  ~PartListener();

 private:
  friend void end_part(const char* name);

  std::function<void(const char*)> ended_;
  PartListener* previous_;
};

}  // namespace tutorial
