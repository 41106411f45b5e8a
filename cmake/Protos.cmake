# tenure_protos: the messages and stubs of proto/, generated into the build tree.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)

set(TENURE_PROTO_DIR ${CMAKE_SOURCE_DIR}/proto)
set(TENURE_PROTO_OUT ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${TENURE_PROTO_OUT})
file(GLOB TENURE_MESSAGE_PROTOS CONFIGURE_DEPENDS RELATIVE ${TENURE_PROTO_DIR} ${TENURE_PROTO_DIR}/tenure/v1/*.proto
     ${TENURE_PROTO_DIR}/google/rpc/*.proto)
file(GLOB TENURE_SERVICE_PROTOS CONFIGURE_DEPENDS RELATIVE ${TENURE_PROTO_DIR} ${TENURE_PROTO_DIR}/tenure/v1/*_service.proto)

set(_sources)
set(_headers)
foreach(_proto ${TENURE_MESSAGE_PROTOS})
  string(REGEX REPLACE "\\.proto$" "" _stem ${_proto})
  set(_outputs ${TENURE_PROTO_OUT}/${_stem}.pb.cc ${TENURE_PROTO_OUT}/${_stem}.pb.h)
  set(_grpc_args)
  if(_proto IN_LIST TENURE_SERVICE_PROTOS)
    list(APPEND _outputs ${TENURE_PROTO_OUT}/${_stem}.grpc.pb.cc ${TENURE_PROTO_OUT}/${_stem}.grpc.pb.h)
    set(_grpc_args --grpc_out=${TENURE_PROTO_OUT} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
  endif()
  add_custom_command(
    OUTPUT ${_outputs}
    COMMAND protobuf::protoc -I ${TENURE_PROTO_DIR} --cpp_out=${TENURE_PROTO_OUT} ${_grpc_args} ${_proto}
    DEPENDS ${TENURE_PROTO_DIR}/${_proto}
    COMMENT "proto ${_proto}" VERBATIM)
  foreach(_output ${_outputs})
    if(_output MATCHES "\\.cc$")
      list(APPEND _sources ${_output})
    else()
      list(APPEND _headers ${_output})
    endif()
  endforeach()
endforeach()

add_library(tenure_protos STATIC ${_sources} ${_headers})
target_include_directories(tenure_protos SYSTEM PUBLIC $<BUILD_INTERFACE:${TENURE_PROTO_OUT}>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tenure_protos PUBLIC gRPC::grpc++ protobuf::libprotobuf absl::synchronization)
