# Warnings, sanitizers and build speed, for every target of the project.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # The base directory makes objects of one checkout serve another.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_library(tenure_warnings INTERFACE)
target_compile_options(tenure_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  -Wcast-qual -Woverloaded-virtual -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(tenure_warnings INTERFACE -Wthread-safety)
endif()

if(TENURE_SANITIZE)
  add_compile_options(-fsanitize=${TENURE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TENURE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # False alarms of g++ 12 in instrumented code: std::regex and boost::optional "may be uninitialized", and the fences of Asio,
    # which the thread sanitizer does not understand and does not need. The plain build keeps both warnings.
    target_compile_options(tenure_warnings INTERFACE -Wno-maybe-uninitialized)
    if(TENURE_SANITIZE MATCHES thread)
      target_compile_options(tenure_warnings INTERFACE -Wno-tsan)
      # protobuf lays out MapFieldBase otherwise where it sees this macro, and Debian's libprotobuf was built without it.
      add_compile_options(-U__SANITIZE_THREAD__)
    endif()
  endif()
endif()
