// Database: see the header. Layer: app.
#include "server/app/database.h"

#include "absl/strings/str_cat.h"
#include "server/base/logging.h"
#include "server/base/status.h"

namespace tenure::app {

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const Configuration& configuration) {
  std::unique_ptr<Database> database(new Database);
  if (!configuration.embedded()) {
    database->url_ = configuration.database_url;
    database->description_ = RedactUrl(configuration.database_url);
    return database;
  }
  database->embedded_ = true;
  database->options_.data_dir = configuration.data_dir;
  database->options_.bin_dir = configuration.postgres_bin_dir;
  LogInfo("starting the embedded PostgreSQL", {{"data_dir", configuration.data_dir}});
  TENURE_ASSIGN_OR_RETURN(database->postgres_, embedded::Postgres::Start(database->options_));
  LogInfo(database->postgres_->adopted() ? "took over the embedded PostgreSQL of an earlier daemon"
                                         : "the embedded PostgreSQL runs",
          {{"pid", absl::StrCat(database->postgres_->postmaster_pid())}});
  database->url_ = database->postgres_->url();
  database->description_ = absl::StrCat("the embedded PostgreSQL in ", configuration.data_dir);
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenToLook(const Configuration& configuration) {
  if (!configuration.embedded()) return Open(configuration);
  absl::StatusOr<std::string> running = embedded::FindRunning(configuration.data_dir);
  if (!running.ok()) {
    absl::StatusOr<std::unique_ptr<Database>> opened = Open(configuration);
    if (opened.ok() || DetailsOf(opened.status()).reason != "DATA_DIR_IN_USE") return opened;
    // A daemon started it in between.
    running = embedded::FindRunning(configuration.data_dir);
    if (!running.ok()) return running.status();
  }
  std::unique_ptr<Database> database(new Database);
  database->url_ = *std::move(running);
  database->description_ = absl::StrCat("the embedded PostgreSQL in ", configuration.data_dir);
  return database;
}

absl::Status Database::Revive() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!embedded_ || stopped_ || (postgres_ && postgres_->running())) return absl::OkStatus();
  LogError("the embedded PostgreSQL has ended; starting it again", {{"data_dir", options_.data_dir}});
  postgres_.reset();  // Gives the data directory back.
  TENURE_ASSIGN_OR_RETURN(postgres_, embedded::Postgres::Start(options_));
  if (postgres_->url() != url_) {
    return absl::InternalError(
        absl::StrCat("the embedded PostgreSQL came back under another address: ", postgres_->url()));
  }
  return absl::OkStatus();
}

absl::Status Database::Stop(absl::Duration grace) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  return postgres_ ? postgres_->Stop(grace) : absl::OkStatus();
}

}  // namespace tenure::app
