#include "common/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

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
