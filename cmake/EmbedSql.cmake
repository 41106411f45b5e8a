# tenure_embed_sql(<target> NAMESPACE <ns> HEADER <name.h> FILES a.sql b.sql ...)
# Makes a .sql file a named constant: claim_jobs.sql becomes <ns>::kClaimJobs, so that SQL text lives in .sql files alone.
# The header also has kAll, a table of (file name, text), which the plan test walks.
set(_TENURE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/embed_sql.cmake)
function(tenure_embed_sql target)
  cmake_parse_arguments(ARG "" "NAMESPACE;HEADER" "FILES" ${ARGN})
  set(_out ${CMAKE_CURRENT_BINARY_DIR}/embedded_sql/${ARG_HEADER})
  add_custom_command(
    OUTPUT ${_out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${_out} -DNAMESPACE=${ARG_NAMESPACE} "-DFILES=${ARG_FILES}" -P ${_TENURE_EMBED_SCRIPT}
    DEPENDS ${ARG_FILES} ${_TENURE_EMBED_SCRIPT}
    COMMENT "embedding ${ARG_HEADER}" VERBATIM)
  target_sources(${target} PRIVATE ${_out})
  target_include_directories(${target} PUBLIC ${CMAKE_CURRENT_BINARY_DIR}/embedded_sql)
endfunction()
