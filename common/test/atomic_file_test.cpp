#include "common/atomic_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "common/error.hpp"
#include "common/test/files.hpp"

namespace tutorial {
namespace {

namespace fs = std::filesystem;

TEST(AtomicFile, AppearsWhenItIsComplete) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder / "a");
    file.write("abc", 3);
    EXPECT_FALSE(fs::exists(folder / "a"));
    file.write("de", 2);
    file.commit();
  }
  EXPECT_EQ(read_bytes(folder / "a"), "abcde");
  EXPECT_EQ(folder.file_count(), 1);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  write_bytes(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("new", 3);
  }
  EXPECT_EQ(read_bytes(folder / "a"), "old");
  EXPECT_EQ(folder.file_count(), 1);
}

TEST(AtomicFile, KeepsPermissionsAndSymbolicLinks) {
  const TemporaryFolder folder;
  write_bytes(folder / "target", "old");
  fs::permissions(folder / "target", fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  fs::create_symlink("target", folder / "link");
  AtomicFile file(folder / "link");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "target"), "new");
  EXPECT_EQ(fs::status(folder / "target").permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

TEST(AtomicFile, CreatesWhatADanglingLinkNames) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "elsewhere");
  fs::create_symlink("elsewhere/target", folder / "link");
  fs::create_symlink("link", folder / "first");
  AtomicFile file(folder / "first");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "first"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "elsewhere/target"), "new");
  fs::create_symlink("circle", folder / "circle");
  EXPECT_THROW(AtomicFile(folder / "circle"), UsageError);
}

TEST(AtomicFile, TwoNamesOfAFileHaveOneTarget) {
  const TemporaryFolder folder;
  const fs::path here = fs::current_path();
  fs::current_path(folder.path());
  fs::create_symlink("new", "link");
  const fs::path expected = fs::canonical(".") / "new";
  for (const char* name : {"new", "./new", "link", "../x/../new", "//new"}) {
    const bool elsewhere = std::string(name).starts_with("..") || std::string(name).starts_with("//");
    EXPECT_EQ(target_of(name) == expected, !elsewhere) << name << target_of(name);
  }
  fs::current_path(here);
}

// The reader of a pipe that is opened and closed again sees its end, and the next one to open the pipe waits for ever.
TEST(AtomicFile, PipesAreOpenedOnce) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  require_writable(folder / "pipe");  // does not wait for a reader
  std::string text;
  std::thread reader([&] { text = read_bytes(folder / "pipe"); });
  AtomicFile file(folder / "pipe");
  file.write("abc", 3);
  file.commit();
  reader.join();
  EXPECT_EQ(text, "abc");
}

// A process that is killed while it writes.
TEST(AtomicFile, LeavesNothingWhenKilled) {
  const TemporaryFolder folder;
  const int probe = open(folder.path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (probe < 0) GTEST_SKIP() << "this file system knows no files without a name";
  close(probe);
  EXPECT_EXIT(
      {
        AtomicFile file(folder / "a");
        file.write("abc", 3);
        raise(SIGKILL);
      },
      testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(folder.file_count(), 0);
}

TEST(AtomicFile, NewFilesHaveTheUsualPermissions) {
  const TemporaryFolder folder;
  const mode_t mask = umask(027);
  AtomicFile file(folder / "a");
  file.commit();
  umask(mask);
  EXPECT_EQ(fs::status(folder / "a").permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

TEST(AtomicFile, WritesToDevicesDirectly) {
  AtomicFile file("/dev/null");
  file.write("abc", 3);
  file.commit();
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, FullDevicesAreAnError) {
  AtomicFile file("/dev/full");
  EXPECT_THROW(file.write("abc", 3), UsageError);
}

TEST(RequireWritable, NamesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(require_writable(folder / "a"));
  EXPECT_EQ(folder.file_count(), 0);
  EXPECT_THROW(require_writable(""), UsageError);
  EXPECT_THROW(require_writable(folder.path()), UsageError);
  EXPECT_THROW(require_writable(folder / "a/b"), UsageError);
  EXPECT_THROW(require_writable(folder / std::string(300, 'x')), UsageError);
  try {
    require_writable("/no/such/folder/o.safetensors");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "cannot write /no/such/folder/o.safetensors: No such file or directory");
  }
}

}  // namespace
}  // namespace tutorial
