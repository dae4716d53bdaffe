import com.adobe.testing.s3mock.S3MockApplication;
import org.apache.catalina.connector.Connector;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** S3Mock, whose second connector knows no address of its own and would listen on all of them. */
public class S3MockOnLoopback {
    @Configuration
    public static class Loopback {
        @Bean
        public static BeanPostProcessor loopbackConnectors() {
            return new BeanPostProcessor() {
                @Override
                public Object postProcessAfterInitialization(Object bean, String name) {
                    if (bean instanceof Connector connector) {
                        connector.setProperty("address", "127.0.0.1");
                    }
                    return bean;
                }
            };
        }
    }

    public static void main(String[] arguments) {
        Thread.currentThread().setContextClassLoader(S3MockApplication.class.getClassLoader());
        new SpringApplicationBuilder(S3MockApplication.class, Loopback.class).run(arguments);
    }
}
